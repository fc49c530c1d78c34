// One strategy's layer at one site, applied to given towers: what `bnlab layer` is asked and answers.
#pragma once

#include <torch/types.h>

#include <optional>
#include <string>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/json.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

class ThreadRanks;

struct LayerStep {
  Mode mode = Mode::train;            // train, evaluate_saved or evaluate_batch
  std::vector<at::Tensor> inputs;     // one per tower, [n_t, C, ...]
  std::vector<at::Tensor> gradients;  // of the outputs, one per tower, each undefined (zero) or like the
                                      // output; empty: no backward pass
  // false: the answer has no state of the layer, and what the ranks hold apart stays apart after this step
  bool merges = true;
};

// For strategies whose site is a convolution (weight_norm).
struct LayerConv {
  at::Tensor v;           // [out, in, k, k]
  at::Tensor gain, bias;  // [out]; undefined: norm(v) and 0
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
  Activation activation = Activation::none;
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
  std::vector<Collective> collectives;        // of the step itself, as one rank issues them
  std::vector<int64_t> permutation;           // empty: no sample has moved
  at::Tensor v_gradient, gain_gradient;       // weight_norm (its bias gradient is bias_gradient)
  at::Tensor gain, bias;                      // weight_norm: in force
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
//   {"strategy": {"name": ..., ...}, "dtype": "float64", "memory_format": "contiguous", "seed": 0,
//    "weight": [...], "bias": [...], "running_mean": [...], "running_var": [...],
//    "conv": {"v": TENSOR, "gain": [...], "bias": [...], "stride": 1, "padding": 0},
//    "steps": [{"mode": "train", "towers": [{"input": TENSOR, "grad_output": TENSOR}, ...]}, ...]}
// Throws Error (spec) with the path of the first key at fault and what was expected there.
LayerCase read_layer_case(const Json& document);

// `strategy` ("sync" or {"name": "sync", ...}) with its defaults filled in. Throws Error (spec).
Json resolved_strategy(const Json& strategy);

}  // namespace bnlab
