// LibTorch's own batch_norm in float64 on the case's global batch, and what expected values are built from.
#pragma once

#include <string>
#include <vector>

#include "harness/layer/layer_case.hpp"

namespace bnlab {

constexpr double kExact = 1e-12;  // relative, in float64: some hundred roundings of 1e-16

// The value of an option of the strategy or, of a wrapper, of its base; null where neither has it.
Json option(const Json& strategy, const std::string& key);
// The innermost base of a wrapper; a strategy that is no wrapper is returned itself.
const Json& innermost(const Json& strategy);

at::Tensor by_channel(const at::Tensor& values, const at::Tensor& like);  // [C] -> [1, C, 1, ...]
at::Tensor rows(const at::Tensor& x);                                     // [n, C, ...] -> [C, values]

// Over all towers at once, step by step, with the case's eps, momentum, weights and running statistics; one
// output and one input gradient per step.
LayerAnswer plain_batch_norm(const LayerCase& layer_case);

// The answer with the towers' outputs and input gradients as one.
LayerAnswer joined(const LayerAnswer& answer);
// The case with its samples dealt to towers of other sizes.
LayerCase dealt(const LayerCase& layer_case, const std::vector<int64_t>& sizes);

}  // namespace bnlab
