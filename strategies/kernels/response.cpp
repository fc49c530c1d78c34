#include "strategies/kernels/response.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace bnlab::kernels {

using at::Tensor;

namespace {

// For each channel of a sample.
Tensor empty_values(const Tensor& x, const Offsets& rows) {
  const at::TensorOptions options = x.options().dtype(statistics_type(x.scalar_type())).memory_format({});
  const int64_t samples = static_cast<int64_t>(rows.size()) - 1;
  return x.numel() == 0 ? at::zeros({samples, x.size(1)}, options) : at::empty({samples, x.size(1)}, options);
}

}  // namespace

Response response(const Tensor& x, const Offsets& rows, const Tensor& residual,
                  const ResponseOptions& options) {
  Response out;
  out.k.invstd = empty_values(x, rows);
  out.k.scale = empty_values(x, rows);
  out.k.shift = empty_values(x, rows);
  const Tensor& tau = options.threshold;
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda()) {
    const LayerTensors in = layer_tensors("response", x, rows, residual, options.activation);
    out.y = in.out;
    {
      const OneKernel sums;
    }
    const OneKernel writes;
    if (x.numel() > 0) cuda::response_forward(in, out.k, options);
    return out;
  }
#endif
  {
    const OneKernel sums;
    const Tensor packed = moments(x, rows);
    const channel::Rows m = rows_of(packed);
    out.k.mean = at::zeros_like(out.k.scale);
    in_precision(out.k.scale.scalar_type(), [&](auto zero) {
      const channel::ResponseForward<decltype(zero)> step(options, out.k);
      for (int64_t i = 0; i < out.k.scale.numel(); ++i) {
        const int64_t sample = i / m.channels, c = i % m.channels;
        const double mean = m.mean(sample, c);
        step.of_sample(i, c, m.m2(sample, c) / channel::at_least_one(m.count(sample)) + mean * mean);
      }
    });
  }
  const OneKernel writes;
  out.z = out.y = normalise(x, rows, out.k.mean, out.k.scale, out.k.shift, options.activation, residual);
  if (!tau.defined()) return out;
  // max(z + tau, tau) is max(z, 0) + tau: tau is taken off before ReLU, and added behind it.
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = -1;
  out.y = at::empty_like(out.z);
  at::add_out(out.y, out.z, tau.view(shape));
  return out;
}

ResponseGradients response_gradients(const Incoming& in, [[maybe_unused]] const Tensor& residual,
                                     const Coefficients& k, const ResponseOptions& options, bool with_x,
                                     bool with_residual) {
  const Tensor &x = in.x, &tau = options.threshold;
  ResponseGradients out{.dweight = empty_gradient(options.weight, x),
                        .dbias = empty_gradient(options.bias, x),
                        .dthreshold = empty_gradient(tau, x)};
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda()) {
    const char* where = "response_gradients";
    LayerTensors layer = layer_tensors(where, x, in.offsets, residual, in.activation);
    layer.dy = like(where, "dy", in.dy, layer.x);
    if (!with_x) layer.out = Tensor();
    if (with_residual) layer.dresidual = at::empty_like(layer.x);
    out.dx = layer.out;
    out.dresidual = layer.dresidual;
    {
      const OneKernel sums;
    }
    const OneKernel writes;
    if (x.numel() > 0) cuda::response_backward(layer, k, options, out);
    return out;
  }
#endif
  const Tensor b = at::empty_like(k.scale);
  {
    const OneKernel sweep;
    const Tensor sums = in.sums(in.mean);
    Tensor total;
    if (tau.defined()) {
      std::vector<int64_t> but_channels(static_cast<size_t>(x.dim()) - 1, 0);
      std::iota(but_channels.begin() + 1, but_channels.end(), 2);
      total = at::sum(in.dy, but_channels, /*keepdim=*/false, tau.scalar_type());
    }
    in_precision(sums.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t channels = x.size(1), positions = x.numel() / std::max<int64_t>(1, k.scale.numel());
      channel::ResponseBackward<T> step(positions, sums, k, b, options, out);
      step.total = read<T>(total);
      for (int64_t i = 0; i < b.numel(); ++i) {
        const int64_t c = i % channels, of_b = (2 * (i / channels) + 1) * channels + c;
        step.of_sample(i, c, static_cast<double>(step.sums[of_b]));
      }
      for (int64_t c = 0; c < channels; ++c) step.of_parameters(c);
    });
  }
  const OneKernel writes;
  if (with_x) out.dx = in.input_gradient(in.mean, k.scale, b, /*c=*/k.mean);
  if (with_residual) out.dresidual = in.g();
  return out;
}

}  // namespace bnlab::kernels
