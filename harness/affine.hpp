// What a layer does to each channel, where that is a scale and a shift by constants: asked by passing
// numbers.
#pragma once

#include <torch/types.h>

#include <functional>
#include <optional>

namespace bnlab {

struct Affine {
  at::Tensor scale, shift;  // [C] float64
};

// apply(x, residual): the layer of x [2, C, 2, 2] float64, which may have a ReLU behind the sum. Nothing
// where what comes out depends on more than the value itself.
inline std::optional<Affine> affine_of(
    const std::function<at::Tensor(const at::Tensor& x, const at::Tensor& residual)>& apply, int64_t channels,
    at::Device device) {
  const at::NoGradGuard no_grad;
  const at::Tensor x =
      at::linspace(-2, 3, 8 * channels, at::TensorOptions().dtype(at::kDouble).device(device))
          .view({2, channels, 2, 2});
  for (double lift = 1; lift < 1e12; lift *= 16) {  // above the ReLU
    const auto lifted = [&](const at::Tensor& of) { return apply(of, at::full_like(of, lift)); };
    const at::Tensor zero = lifted(at::zeros_like(x)), one = lifted(at::ones_like(x)), y = lifted(x);
    if (at::cat({zero, one, y}).min().item<double>() <= 0) continue;
    const auto of_channel = [](const at::Tensor& t) { return t.select(0, 0).select(1, 0).select(1, 0); };
    const at::Tensor scale = of_channel(one - zero);
    const double error = (y - zero - x * scale.view({1, -1, 1, 1})).abs().max().item<double>();
    if (!(error <= 1e-9 * y.abs().max().item<double>())) return std::nullopt;
    return Affine{scale, of_channel(zero) - lift};
  }
  return std::nullopt;
}

}  // namespace bnlab
