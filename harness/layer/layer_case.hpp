// One strategy's layer at one site, applied to given towers: what `bnlab layer` is asked and answers.
#pragma once

#include <torch/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/communicator.hpp"
#include "harness/communicator/world.hpp"
#include "harness/strategy.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

class ThreadRanks;

struct LayerStep {
  Mode mode = Mode::train;            // train, evaluate_saved or evaluate_batch
  double own_share = 0;               // PassDetails::own_share, of evaluate_saved
  std::vector<at::Tensor> inputs;     // one per tower, [n_t, C, ...]
  std::vector<at::Tensor> gradients;  // at the outputs, one per tower, each undefined (zero) or like the
                                      // output; empty: no backward pass
  // false: the answer has no state of the layer, and what the ranks hold apart stays apart after this step
  bool merges = true;
};

// For strategies whose site is a convolution (weight_norm, weight_standardisation).
struct LayerConv {
  at::Tensor v;           // [out, in, k, k]
  at::Tensor gain, bias;  // [out], where the strategy has them; undefined: norm(v) and 0
  int64_t stride = 1;
  int64_t padding = 0;
};

struct LayerCase {
  Json strategy;  // resolved: {"name": ..., all parameters}
  at::ScalarType dtype = at::kDouble;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  uint64_t seed = 0;
  at::Tensor weight, bias;               // [C], statistics' precision; undefined: 1 and 0
  at::Tensor running_mean, running_var;  // [C]; undefined: 0 and 1
  // Other parameters of the site by name, as the strategy begins with them where they are not given:
  // "threshold" [C], "alpha" [1].
  std::map<std::string, at::Tensor> parameters;
  Activation activation = Activation::none;
  // So many training steps below are the passes of one training step (spec key accumulate), and when running
  // statistics are written (statistics_per).
  int64_t accumulate = 1;
  bool statistics_per_step = false;
  bool fresh_weights = true;  // false: they come from a checkpoint, so data initialise nothing
  std::optional<LayerConv> conv;
  std::vector<LayerStep> steps;  // all with the same number of towers

  size_t towers() const { return steps.empty() ? 0 : steps.front().inputs.size(); }
  // The memory format of tensors with so many dimensions; channels_last has a meaning from four on.
  at::MemoryFormat format(int64_t dims) const {
    return memory_format == at::MemoryFormat::Contiguous ? memory_format
           : dims == 5                                   ? at::MemoryFormat::ChannelsLast3d
                                                         : at::MemoryFormat::ChannelsLast;
  }
};

struct LayerStepAnswer {
  std::vector<at::Tensor> outputs, input_gradients;  // one per tower; no gradients: empty
  at::Tensor weight_gradient, bias_gradient;  // summed over all towers; undefined where there is no weight
  at::Tensor running_mean, running_var;       // the saved pair after the step; undefined: none
  std::vector<Collective> collectives;        // in the step itself, as one rank issues them
  std::vector<int64_t> permutation;           // empty: no sample has moved
  at::Tensor v_gradient, gain_gradient;       // convolutions only; their bias gradient is bias_gradient
  at::Tensor gain, bias;                      // weight_norm: in force
  std::map<std::string, at::Tensor> parameter_gradients;  // by the names of LayerCase::parameters
};

struct LayerAnswer {
  std::vector<LayerStepAnswer> steps;
  int64_t nonfinite_channels = 0;
};

// The case in `ranks` ranks, threads of this process that meet over loopback (one rank: in this thread);
// ranks must divide the towers. Throws Error as the strategy refuses; `key` then names the part of the case
// that was being done: "strategy", "running_var", "steps[2].towers".
LayerAnswer apply_layer(const LayerCase& layer_case, int ranks = 1, at::DeviceType device = at::kCPU,
                        std::string* key = nullptr);
// The same on ranks that have met already: for many cases.
LayerAnswer apply_layer(const LayerCase& layer_case, ThreadRanks& ranks, std::string* key = nullptr);

// A layer case as `bnlab layer` reads it; a TENSOR is {"shape": [...], "data": [...]}:
//   {"strategy": {"name": ..., ...}, "dtype": "float64", "memory_format": "contiguous",
//    "activation": "none", "seed": 0, "weight": [...], "bias": [...], "threshold": [...], "alpha": [...],
//    "running_mean": [...], "running_var": [...],
//    "accumulate": 1, "statistics_per": "micro_batch",
//    "conv": {"v": TENSOR, "gain": [...], "bias": [...], "stride": 1, "padding": 0},
//    "steps": [{"mode": "train", "towers": [{"input": TENSOR, "grad_output": TENSOR}, ...]}, ...]}
// Throws Error (spec) with the path of the first key at fault and what was expected there.
LayerCase read_layer_case(const Json& document);

// `strategy` ("sync" or {"name": "sync", ...}) with its defaults filled in. Throws Error (spec).
Json resolved_strategy(const Json& strategy);

// One rank's share of a layer case: a network of the one site, its state, its steps.
class LayerRank {
 public:
  // Both outlive this. `key` is kept at the part of the case that is being done, for messages.
  LayerRank(const LayerCase& layer_case, World& world, std::string& key);

  // To be called for 0, 1, ... in turn. Outputs and input gradients are of this rank's towers, the gradients
  // of weight and bias its share of the sums; all on the CPU.
  LayerStepAnswer step(size_t index);
  int64_t nonfinite_channels() const;
  Strategy& strategy() { return built_.strategy(); }
  // Parameters and buffers of the site, by their name in it.
  const std::map<std::string, at::Tensor>& state() const { return state_; }

 private:
  static BuiltNetwork built(const LayerCase& layer_case, World& world, std::string& key);
  void load_norm();
  void load_conv(const LayerConv& conv);
  void load(const std::string& key, const std::string& name, const at::Tensor& value);
  bool has(const std::string& name) const { return state_.count(name) > 0; }
  [[noreturn]] void refuse(const std::string& message) const;

  void check_rows(const LayerStep& step) const;
  Batch batch_of(const LayerStep& step) const;
  void apply(const LayerStep& step, const Batch& batch, LayerStepAnswer& answer);
  at::Tensor output_gradients(const LayerStep& step, const std::vector<at::Tensor>& outputs) const;
  at::Tensor gradient(const std::string& name) const;
  std::map<std::string, at::Tensor> other_gradients() const;
  // Its name in `state_`, for a convolution.
  std::string direction() const { return has("v") ? "v" : "weight"; }
  int64_t steps_done() const { return static_cast<int64_t>(trained_.size()) / case_.accumulate; }
  void load_into_buffers(Population::Kind population);
  void restore();

  const LayerCase& case_;
  World& world_;
  std::string& key_;
  BuiltNetwork built_;
  std::map<std::string, at::Tensor> state_;
  std::vector<Batch> trained_;  // what has been passed in training so far
};

}  // namespace bnlab
