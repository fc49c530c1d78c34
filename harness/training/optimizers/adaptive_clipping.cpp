#include "harness/training/optimizers/adaptive_clipping.hpp"

#include <torch/types.h>

#include <numeric>
#include <vector>

namespace bnlab {
namespace {

constexpr double kSmallestWeight = 1e-3;  // as published: units that start at 0 must be able to leave it
constexpr double kSmallestGradient = 1e-6;

at::Tensor norm_of_units(const at::Tensor& t) {
  if (t.dim() < 2) return t.norm();
  std::vector<int64_t> all_but_outputs(static_cast<size_t>(t.dim()) - 1);
  std::iota(all_but_outputs.begin(), all_but_outputs.end(), 1);
  return t.norm(2, all_but_outputs, /*keepdim=*/true);
}

}  // namespace

void clip_adaptively(const at::Tensor& weight, const at::Tensor& gradient, double limit) {
  const at::NoGradGuard no_grad;
  const at::Tensor longest = norm_of_units(weight).clamp_min_(kSmallestWeight).mul_(limit);
  const at::Tensor length = norm_of_units(gradient).clamp_min_(kSmallestGradient);
  gradient.mul_((longest / length).clamp_max_(1));
}

}  // namespace bnlab
