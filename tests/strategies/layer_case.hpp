// One strategy's layer at one site, applied to given towers: forward, backward and what was remembered.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include "harness/json.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

struct LayerCase {
  Json strategy;                      // as in a spec: "sync" or {"name": "sync", ...}
  std::vector<at::Tensor> inputs;     // one per tower, [n_t, C, ...]
  std::vector<at::Tensor> gradients;  // of the outputs; empty: no backward pass
  at::Tensor weight, bias;            // [C]; undefined: 1 and 0
  at::Tensor running_mean, running_var;
  Activation activation = Activation::none;
  Mode mode = Mode::train;
  int steps = 1;  // the same input again and again
};

struct LayerAnswer {
  std::vector<at::Tensor> outputs, input_gradients;  // one per tower, of the last step
  at::Tensor weight_gradient, bias_gradient;         // of the last step, summed over all towers
  at::Tensor running_mean, running_var;              // the saved pair
  int64_t nonfinite_channels = 0;
};

// In a world of one that hosts all towers.
LayerAnswer apply_layer(const LayerCase& layer_case);

// The strategy object with its defaults filled in.
Json resolved_strategy(const Json& strategy);

// Largest |a - b| relative to the largest |b| (at least 1e-300).
double relative_error(const at::Tensor& a, const at::Tensor& b);

}  // namespace bnlab
