// PyTorch's SyncBatchNorm for the CPU, which has none: the five operators that it is made of, by their
// formulas. With them a DistributedDataParallel of Python's trains on simulated GPUs, as a rival of ours.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// All dimensions but the channels'.
std::vector<int64_t> others(const Tensor& x) {
  std::vector<int64_t> dimensions{0};
  for (int64_t d = 2; d < x.dim(); ++d) dimensions.push_back(d);
  return dimensions;
}

// [C] as [1, C, 1, ...]
Tensor along(const Tensor& values, const Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = values.numel();
  return values.to(at::kFloat).reshape(shape);
}

Tensor scale_of(const Tensor& invstd, const OptionalTensor& weight) {
  return weight && weight->defined() ? invstd * weight->to(at::kFloat) : invstd;
}

std::tuple<Tensor, Tensor> stats(const Tensor& x, double eps) {
  const Tensor values = x.to(at::kFloat);
  return {values.mean(others(x)), (values.var(others(x), false) + eps).rsqrt()};
}

// mean, invstd: [ranks, C]; counts: [ranks].
std::tuple<Tensor, Tensor> gather_stats(const Tensor& /*x*/, const Tensor& mean, const Tensor& invstd,
                                        const OptionalTensor& running_mean, const OptionalTensor& running_var,
                                        double momentum, double eps, const Tensor& counts) {
  const Tensor n = counts.to(at::kFloat).reshape({-1, 1}), total = n.sum();
  const Tensor all = (mean * n).sum(0) / total;
  const Tensor variance = ((invstd.pow(-2) - eps + (mean - all).square()) * n).sum(0) / total;
  if (running_mean && running_mean->defined()) running_mean->mul_(1 - momentum).add_(all, momentum);
  if (running_var && running_var->defined())
    running_var->mul_(1 - momentum).add_(variance * (total / (total - 1)), momentum);
  return {all, (variance + eps).rsqrt()};
}

Tensor element(const Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, const Tensor& mean,
               const Tensor& invstd, double /*eps*/) {
  Tensor y = (x.to(at::kFloat) - along(mean, x)) * along(scale_of(invstd, weight), x);
  if (bias && bias->defined()) y = y + along(*bias, x);
  return y.to(x.scalar_type(), false, false, x.suggest_memory_format());
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& dy, const Tensor& x,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           const OptionalTensor& /*weight*/, bool /*input*/,
                                                           bool /*weight*/, bool /*bias*/) {
  const Tensor g = dy.to(at::kFloat);
  const Tensor sum = g.sum(others(x));
  const Tensor product = (g * (x.to(at::kFloat) - along(mean, x))).sum(others(x));
  return {sum, product, product * invstd, sum.clone()};
}

Tensor backward_element(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& invstd,
                        const OptionalTensor& weight, const Tensor& sum, const Tensor& product,
                        const Tensor& count) {
  const Tensor total = count.sum().to(at::kFloat);
  const Tensor away = (x.to(at::kFloat) - along(mean, x)) * along(invstd.square() * product / total, x);
  const Tensor dx = (dy.to(at::kFloat) - along(sum / total, x) - away) * along(scale_of(invstd, weight), x);
  return dx.to(x.scalar_type(), false, false, x.suggest_memory_format());
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("batch_norm_stats", stats);
  library.impl("batch_norm_gather_stats_with_counts", gather_stats);
  library.impl("batch_norm_elemt", element);
  library.impl("batch_norm_backward_reduce", backward_reduce);
  library.impl("batch_norm_backward_elemt", backward_element);
}

}  // namespace
