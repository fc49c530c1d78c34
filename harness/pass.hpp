// One forward pass, as layers and strategies need to know it. It is an argument everywhere, so that what a
// layer computes depends on its arguments and its own state alone.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "harness/towers.hpp"

namespace bnlab {

class StepBytes;  // upload.hpp

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

struct Pass {
  Towers towers;
  int64_t rows_per_sample = 1;  // rows of the network's input per sample: 1, or the frames of a clip
  Step step;
  Mode mode = Mode::train;
  double own_share = 0;  // of Mode::evaluate_saved: what the moments of each sample itself weigh (Kind::mix)
  uint64_t batch = 0;    // the batch's index in its stream: the training step, or the calibration batch
  uint64_t seed = 0;     // of the run
  std::array<int64_t, 2> image_size{};  // height and width of the network's input
  // The row of the global batch that stands at each of this rank's rows, where a strategy has moved rows;
  // empty where all stand in order.
  std::vector<int64_t> rows = {};
  // What the step takes from the host, where it may be replayed; else null.
  StepBytes* bytes = nullptr;

  // Whether the network's weights learn from this pass, or statistics are collected as if they did.
  bool as_in_training() const {
    return mode == Mode::train || mode == Mode::train_frozen || mode == Mode::calibrate;
  }
};

}  // namespace bnlab
