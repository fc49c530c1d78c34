#include "strategies/engine/moments.hpp"

#include <torch/types.h>

#include <algorithm>
#include <vector>

namespace bnlab {

Moments::Moments(const at::Tensor& packed) {
  const int64_t channels = (packed.size(1) - 1) / 2;
  count = packed.narrow(1, 0, 1);
  mean = packed.narrow(1, 1, channels);
  m2 = packed.narrow(1, 1 + channels, channels);
}

at::Tensor Moments::var(double ddof) const {
  return m2 / (count - ddof).clamp_min(1);
}

at::Tensor about_zero(const at::Tensor& rows) {
  const Moments r(rows);
  return pack_moments(r.count, at::zeros_like(r.mean), r.m2 + r.count * r.mean.square());
}

at::Tensor pack_moments(const at::Tensor& count, const at::Tensor& mean, const at::Tensor& m2) {
  return at::cat({count, mean, m2}, 1);
}

namespace {

// [values.size()]. Made of fills, not uploaded, so that a training step with it can be replayed.
at::Tensor filled(const std::vector<int64_t>& values, at::Device device) {
  const auto type = at::TensorOptions().dtype(at::kLong).device(device);
  std::vector<at::Tensor> stretches{at::empty({0}, type)};
  for (auto begin = values.begin(), end = begin; begin != values.end(); begin = end) {
    end = std::find_if(begin, values.end(), [&](int64_t value) { return value != *begin; });
    stretches.push_back(at::full({end - begin}, *begin, type));
  }
  return at::cat(stretches);
}

}  // namespace

at::Tensor merge_moments(const at::Tensor& rows, const std::vector<int64_t>& group_of_row, int64_t groups) {
  const Moments r(rows);
  const at::Tensor index = filled(group_of_row, rows.device());
  const auto sum = [&](const at::Tensor& t) {
    return at::zeros({groups, t.size(1)}, t.options()).index_add_(0, index, t);
  };
  const at::Tensor count = sum(r.count);
  const at::Tensor mean = sum(r.count * r.mean) / count.clamp_min(1);
  const at::Tensor spread = r.count * (r.mean - mean.index_select(0, index)).square();
  return pack_moments(count, mean, sum(r.m2 + spread));
}

}  // namespace bnlab
