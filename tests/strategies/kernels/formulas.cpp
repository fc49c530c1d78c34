#include "tests/strategies/kernels/formulas.hpp"

#include <ATen/ATen.h>

#include <functional>

namespace bnlab::kernels {
namespace {

// Channels first in the statistics' view: [1, C, 1, ...] like x.
Tensor spread(const Tensor& values, const Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = x.size(1);
  return values.to(at::kDouble).reshape(shape);
}

std::vector<int64_t> all_but_channels(const Tensor& x) {
  std::vector<int64_t> dims = {0};
  for (int64_t d = 2; d < x.dim(); ++d) dims.push_back(d);
  return dims;
}

// f(slice index, part of x in float64) for every slice, concatenated along the rows.
Tensor by_slice(const Tensor& x, const Offsets& offsets, const std::function<Tensor(int64_t, Tensor)>& f) {
  std::vector<Tensor> parts;
  for (size_t s = 0; s + 1 < offsets.size(); ++s)
    parts.push_back(f(static_cast<int64_t>(s), x.slice(0, offsets[s], offsets[s + 1]).to(at::kDouble)));
  return at::cat(parts);
}

}  // namespace

Tensor expected_moments(const Tensor& x, const Offsets& offsets) {
  return by_slice(x, offsets, [](int64_t, const Tensor& part) {
    const int64_t count = part.numel() / part.size(1);
    Tensor row = at::zeros({1, 1 + 2 * part.size(1)}, part.options());
    if (count == 0) return row;
    const auto dims = all_but_channels(part);
    const Tensor mean = part.mean(dims, true);
    const Tensor m2 = (part - mean).square().sum(dims);
    row[0][0] = static_cast<double>(count);
    row[0].slice(0, 1, 1 + part.size(1)).copy_(mean.flatten());
    row[0].slice(0, 1 + part.size(1)).copy_(m2);
    return row;
  });
}

Tensor expected_normalise(const Tensor& x, const Offsets& offsets, const Tensor& mean, const Tensor& scale,
                          const Tensor& shift, Activation activation, const Tensor& residual) {
  Tensor y = by_slice(x, offsets, [&](int64_t s, const Tensor& part) {
    return (part - spread(mean[s], x)) * spread(scale[s], x) + spread(shift[s], x);
  });
  if (residual.defined()) y = y + residual.to(at::kDouble);
  return activation == Activation::relu ? y.clamp_min(0) : y;
}

Tensor expected_gradient(const Tensor& dy, const Tensor& y, Activation activation) {
  const Tensor g = dy.to(at::kDouble);
  return activation == Activation::relu ? at::where(y > 0, g, at::zeros_like(g)) : g;
}

Tensor expected_sums(const Tensor& g, const Tensor& x, const Offsets& offsets, const Tensor& mean) {
  const auto dims = all_but_channels(x);
  const Tensor product =
      g * by_slice(x, offsets, [&](int64_t s, const Tensor& part) { return part - spread(mean[s], x); });
  const auto sum = [&](const Tensor& values) {
    return by_slice(values, offsets,
                    [&](int64_t, const Tensor& part) { return part.sum(dims).unsqueeze(0); });
  };
  return at::stack({sum(g), sum(product)}, 1);
}

Tensor expected_input(const Tensor& g, const Tensor& x, const Offsets& offsets, const Tensor& mean,
                      const Tensor& a, const Tensor& b, const Tensor& c) {
  const Tensor line = by_slice(x, offsets, [&](int64_t s, const Tensor& part) {
    return spread(b[s], x) * (part - spread(mean[s], x)) + spread(c[s], x);
  });
  return line + by_slice(g, offsets, [&](int64_t s, const Tensor& part) { return spread(a[s], x) * part; });
}

}  // namespace bnlab::kernels
