// The interface of a strategy: the layers it makes and what it does around them. The training loop
// sees nothing else; no file of the harness names a strategy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/json.hpp"
#include "harness/network.hpp"
#include "harness/population.hpp"
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
  uint64_t index = 0;           // of the batch in its stream: the training step, or the calibration batch
};

// Training batches apart from training, over which the populations `precise` are recomputed: drawn from
// (seed, index) with training augmentation and grouping.
class Calibration {
 public:
  virtual ~Calibration() = default;
  virtual int64_t available() const = 0;  // how many there are at most
  virtual Batch batch(int64_t index) = 0;
};

// How a forward pass normalises.
enum class Mode {
  train,           // as the strategy trains; running statistics are updated
  train_frozen,    // with the saved running statistics, which stay as they are (strategy `frozen`)
  calibrate,       // as in train, but nothing is remembered: the moments are collected for `precise`
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
    Communicator& host;                 // the same between the hosts: takes CPU tensors
    uint64_t seed = 0;                  // for weights and permutations
    at::ScalarType dtype = at::kFloat;  // of parameters and saved statistics
    at::Device device = at::kCPU;
    int64_t steps = 0;                  // of the whole run, for schedules given as fractions; 0: not known
    bool fresh_weights = true;          // false: weights are loaded, so nothing may be initialised from data
    bool replicas = false;              // ranks train apart: each keeps pairs of its own (average_replicas)
    std::vector<Population> shadows{};  // populations (is_shadow) to carry beside the saved pair
  };

  explicit Strategy(const Context& context) : context_(context) {}

  std::shared_ptr<Layer> conv(const ConvSite& site) override;

  // outputs of the network for this rank's samples. Called by every rank, in the same order.
  virtual at::Tensor forward(Network& network, const Batch& batch, const Step& step, Mode mode);

  // Whether the optimiser may change this parameter at this step.
  virtual bool trainable(const std::string& parameter, const Step& step) const;

  // Whether evaluation has running statistics to use; without them, `saved` is the only population.
  virtual bool has_running_statistics() const { return false; }

  // Puts the statistics of `population` where evaluation reads them, the network's buffers: merges what
  // the ranks keep apart, or recomputes. Called by every rank before an evaluation and (saved) before
  // weights are written. Training must not go on before after_eval().
  virtual void before_eval(Network& network, const Population& population, Calibration& calibration);
  // Puts the strategy's own saved pair back.
  virtual void after_eval() {}

  // The network's buffers have been loaded from outside: running statistics start from them.
  virtual void buffers_loaded() {}

  // One step of the moving average over the saved pairs: average <- decay average + (1 - decay) pair.
  virtual void average_running(double /*decay*/) {}

  // Weights of ranks that train apart are being averaged: so are their saved pairs. Called by every rank.
  virtual void average_replicas() {}

  // Channels (summed over sites and steps, this rank) whose moments were not finite. Synchronises.
  virtual int64_t nonfinite_channels() const { return 0; }

  // Whether whole rows travel between the ranks, so that all towers must agree in the other dimensions.
  virtual bool rows_travel() const { return false; }

  // What a record must say of how this strategy ran here.
  virtual std::vector<std::string> notes() const { return {}; }

  // The global row that stood at each place during the last forward pass; empty where none has moved.
  virtual std::vector<int64_t> permutation() const { return {}; }

 protected:
  Context context_;
  Pass pass_;  // of the forward pass under way
};

// The weights that a convolution starts from, [out, in, kernel, kernel] float64 on the CPU: from N(0, 2 /
// fan_in) (He et al. 2015), drawn from a stream of the site's name, the same for every strategy, precision
// and placement.
at::Tensor initial_weights(const ConvSite& site, uint64_t seed);

}  // namespace bnlab
