// How far two tensors are apart.
#pragma once

#include <torch/types.h>

#include <algorithm>

namespace bnlab {

// Largest |a - b| relative to the largest |b| (at least 1e-300).
inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (b.numel() == 0) {
    return a.numel() == 0 ? 0 : 1;
  }
  const double largest = std::max(b.abs().max().item<double>(), 1e-300);
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / largest;
}

}  // namespace bnlab
