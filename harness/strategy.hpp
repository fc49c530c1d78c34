// The interface of a strategy: the layers it makes and what it does around them. The training loop
// sees nothing else; no file of the harness names a strategy.
#pragma once

#include <memory>
#include <string>

#include "harness/json.hpp"
#include "harness/network.hpp"
#include "harness/towers.hpp"

namespace bnlab {

class Communicator;

struct Step {
  int64_t index = 0;  // training steps done before this one
  int64_t total = 1;  // training steps of the whole run
};

// One rank's share of a global batch.
struct Batch {
  at::Tensor images;  // [local samples * rows_per_sample, 3, H, W]
  at::Tensor labels;  // as the task defines them; undefined where only outputs are wanted
  Towers towers;
  int64_t rows_per_sample = 1;  // rows of `images` per sample: 1, or the frames of a clip
};

// How a forward pass normalises.
enum class Mode {
  train,           // as the strategy trains; running statistics are updated
  evaluate_saved,  // with the saved running statistics; exchanges nothing
  evaluate_batch,  // with the moments of the batch itself, grouped as in training; nothing is remembered
};

// What layers need to know of the forward pass they are in.
struct Pass {
  Towers towers;
  int64_t rows_per_sample = 1;
  Step step;
  Mode mode = Mode::train;
};

class Strategy : public LayerMaker {
 public:
  static constexpr const char* kFamily = "strategy";

  struct Context {
    Communicator& statistics;           // for the strategy's exchanges; outlives the strategy
    uint64_t seed = 0;                  // for weights and permutations
    at::ScalarType dtype = at::kFloat;  // of parameters and saved statistics
    at::Device device = at::kCPU;
    int64_t steps = 1;  // of the whole run, for schedules given as fractions
  };

  explicit Strategy(const Context& context) : context_(context) {}

  std::shared_ptr<Layer> conv(const ConvSite& site) override;

  // outputs of the network for this rank's samples. Called by every rank, in the same order.
  virtual at::Tensor forward(Network& network, const Batch& batch, const Step& step, Mode mode);

  // Whether the optimiser may change this parameter at this step.
  virtual bool trainable(const std::string& parameter, const Step& step) const;

  // Completes the saved pairs of all sites (merges over ranks). Called by every rank before an
  // evaluation and before weights are written.
  virtual void before_eval(Network& network);

  // Whether evaluation has a pair of running statistics to use; without one, `saved` is the
  // strategy's only population.
  virtual bool has_running_statistics() const { return false; }

  // Channels (summed over sites and steps, this rank) whose moments were not finite. Synchronises.
  virtual int64_t nonfinite_channels() const { return 0; }

 protected:
  Context context_;
  Pass pass_;  // of the forward pass under way
};

}  // namespace bnlab
