// Adaptive gradient clipping (Brock et al. 2021, NF-Nets): the gradient of each unit is shortened to at most
// `limit` times the norm of the unit's weights,
//   g <- g min(1, limit max(|w|, 1e-3) / |g|)
// where a unit is what belongs to one output of a tensor of two dimensions and more (a row, a filter), and
// any other tensor is one unit.
#pragma once

#include <ATen/core/Tensor.h>

namespace bnlab {

// In place, of one parameter. Nothing waits for the device.
void clip_adaptively(const at::Tensor& weight, const at::Tensor& gradient, double limit);

}  // namespace bnlab
