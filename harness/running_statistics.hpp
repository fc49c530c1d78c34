// What belongs to the running statistics of a strategy, for all sites at once. While training goes on most of
// them lie apart: a rank holds a partial sum, and pairs for other populations stand beside the saved one.
// What an evaluation uses is put into the network's buffers before it. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "harness/population.hpp"
#include "harness/towers.hpp"

namespace at {
class Tensor;
}

namespace bnlab {

class State;

// Training batches apart from training, over which the population `precise` is recomputed: drawn from
// (seed, index) with training augmentation and grouping.
class Calibration {
 public:
  Calibration() = default;  // none
  // `available`: how many there are at most; `forward`: a pass of the whole network over one of them, in
  // Mode::calibrate.
  Calibration(int64_t available, std::function<void(int64_t index)> forward)
      : available_(available), forward_(std::move(forward)) {}

  int64_t available() const { return available_; }
  void forward(int64_t index) const { forward_(index); }

 private:
  int64_t available_ = 0;
  std::function<void(int64_t index)> forward_;
};

// What a training pass leaves for later: an update of running statistics by the sizes of all towers.
using StatisticsUpdate = std::function<void(const Towers& all)>;

// All functions are called by every rank, in the same order.
class RunningStatistics {
 public:
  virtual ~RunningStatistics() = default;

  // Puts the statistics of `population` into the network's buffers: merges what the ranks hold apart, or
  // recomputes. It is called before an evaluation and, for `saved`, before weights are written. Training must
  // not go on before restore(). Throws Error (refused) for a population that was not carried during training.
  // Returns, where statistics were recomputed, for each site in the order in which the network has made them
  // the share of its input's variance that lies between the sets of samples that one tower normalises
  // together, over the batches of the recomputation, the mean over the channels; nothing otherwise.
  virtual std::vector<double> load_into_buffers(const Population& population, Calibration& calibration) = 0;
  // The same for `saved` in two halves, for a caller that merges more than these in one exchange: what this
  // rank holds of the pairs, a tensor for each site, or none where every rank holds them all; and the sums
  // over the ranks in their place.
  virtual std::vector<at::Tensor> summands() = 0;
  virtual void load_sums(const std::vector<at::Tensor>& sums) = 0;
  // What the last training pass with UpdateAt::known_sizes (pass.hpp) has left, an update for each site.
  virtual std::vector<StatisticsUpdate> take_updates() = 0;
  // Forgets what passes in Mode::calibrate have left that no recomputation has used.
  virtual void drop_collected() = 0;
  // Puts the strategy's own pair, as last merged, back into the buffers.
  virtual void restore() = 0;
  // Called once the network's buffers have been written from outside, such as from a file: running statistics
  // go on from them, wherever they now are and in whatever precision, as if after so many training steps.
  virtual void init_from_buffers(int64_t steps) = 0;
  // Merges the saved pair once and for all: passes in Mode::train_frozen use it from now on.
  virtual void freeze() = 0;
  // One step of the moving average over the saved pairs: average <- decay average + (1 - decay) pair.
  // `decay`: [] float64, on the CPU or where the pairs are.
  virtual void update_average(const at::Tensor& decay) = 0;
  // Averages the saved pairs of ranks that train apart, whenever their weights are averaged; after freeze()
  // nothing happens.
  virtual void average_replicas() = 0;
  // Everything that is remembered from step to step, but for the network's buffers (state.hpp).
  virtual void describe(State& state) = 0;
  // Channels (summed over sites and steps, this rank) whose moments were not finite. Synchronises.
  virtual int64_t nonfinite_channels() const = 0;
  // What population `saved` stands for: the pair that training updates, or (strategy `precise`) a recomputed
  // one.
  virtual Population saved() const { return {}; }
};

}  // namespace bnlab
