// One forward pass, as layers and strategies need to know it. It is an argument everywhere, so that what a
// layer computes depends on its arguments and its own state alone.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "harness/towers.hpp"

namespace bnlab {

class Kept;       // recomputation.hpp
class StepBytes;  // upload.hpp

// Whether the activations of a network's blocks are kept for the backward pass, or computed again there
// (recomputation.hpp).
enum class Recompute { none, blocks, naive };
constexpr const char* names(Recompute) {
  return "none, blocks, naive";
}

struct Step {
  int64_t index = 0;  // training steps done before this one
  int64_t total = 1;  // training steps of the whole run
};

// How a forward pass normalises.
enum class Mode {
  train,           // as the strategy trains; running statistics are updated
  train_frozen,    // with the saved running statistics, which stay as they are (strategy `frozen`)
  calibrate,       // as in train, but nothing is remembered: the moments are collected for `precise`
  evaluate_saved,  // with the saved running statistics; exchanges nothing
  evaluate_batch,  // with the moments of the batch itself, grouped as in training; nothing is remembered
};

// When a training pass writes running statistics.
enum class UpdateAt {
  every_pass,   // as a step would
  end_of_step,  // once per step, in its last pass, by the moments of all its passes
  known_sizes,  // once the caller knows the sizes of all towers: RunningStatistics::take_updates
};

// A part of a training step's batch that is passed through the network by itself (accumulation): of each
// tower's consecutive samples the `index`-th of `count` equal parts.
struct MicroBatch {
  int64_t index = 0;
  int64_t count = 1;
  UpdateAt update = UpdateAt::every_pass;

  bool is_first() const { return index == 0; }
  bool is_last() const { return index + 1 == count; }
  bool operator==(const MicroBatch&) const = default;
};

// What single layers ask of a pass, beyond what every layer needs.
struct PassDetails {
  uint64_t seed = 0;
  std::array<int64_t, 2> image_size{};  // height and width of the network's input
  double own_share = 0;  // in Mode::evaluate_saved: what the moments of each sample itself weigh (Kind::mix)
  // The row that stands at each of this rank's rows, where a strategy has moved rows; empty where all stand
  // in order.
  std::vector<int64_t> rows = {};
  StepBytes* bytes = nullptr;  // what the step takes from the host, where it may be replayed; else null
  Recompute recompute = Recompute::none;
  Kept* kept = nullptr;  // within a block that is recomputed; else null
};

struct Pass {
  Towers towers;                // whose rows are passed
  int64_t rows_per_sample = 1;  // rows of the network's input per sample: 1, or the frames of a clip
  Step step;
  Mode mode = Mode::train;
  uint64_t batch = 0;  // the batch's index in its stream: the training step, or the calibration batch
  MicroBatch micro_batch = {};  // which `towers` have of the step's batch
  PassDetails details = {};

  // The number of this pass among all those of its stream of batches.
  uint64_t pass_of(uint64_t batch_index) const {
    return batch_index * static_cast<uint64_t>(micro_batch.count) + static_cast<uint64_t>(micro_batch.index);
  }
  // Where a row stands in the step's batch, all of whose rows are in the order of the towers.
  int64_t row_of_step(int64_t row) const {
    if (micro_batch.count == 1) return row;
    const int64_t sample = row / rows_per_sample;
    int64_t tower = 0;
    while (towers.offset(tower + 1) <= sample) ++tower;
    const int64_t begin =
        micro_batch.count * towers.offset(tower) + micro_batch.index * towers.samples(tower);
    return (begin + sample - towers.offset(tower)) * rows_per_sample + row % rows_per_sample;
  }

  // Whether the network's weights learn from this pass, or statistics are collected as if they did.
  bool as_in_training() const {
    return mode == Mode::train || mode == Mode::train_frozen || mode == Mode::calibrate;
  }
};

}  // namespace bnlab
