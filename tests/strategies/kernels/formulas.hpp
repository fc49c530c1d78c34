// What the sweeps compute (strategies/kernels/kernels.hpp), in plain ATen operations in float64, slice by
// slice.
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

using at::Tensor;

Tensor expected_moments(const Tensor& x, const Offsets& offsets);
Tensor expected_normalise(const Tensor& x, const Offsets& offsets, const Tensor& mean, const Tensor& scale,
                          const Tensor& shift, Activation activation, const Tensor& residual);
Tensor expected_gradient(const Tensor& dy, const Tensor& y, Activation activation);
Tensor expected_sums(const Tensor& g, const Tensor& x, const Offsets& offsets, const Tensor& mean);
Tensor expected_input(const Tensor& g, const Tensor& x, const Offsets& offsets, const Tensor& mean,
                      const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace bnlab::kernels
