#include "strategies/kernels/response.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>
#include <vector>

#include "strategies/kernels/each_item.hpp"

namespace bnlab::kernels {

using at::Tensor;

namespace {

// What both devices are given room for.
Coefficients empty_coefficients(const Tensor& x, const Offsets& rows) {
  const int64_t samples = static_cast<int64_t>(rows.size()) - 1;
  const at::TensorOptions options = x.options().dtype(statistics_type(x.scalar_type())).memory_format({});
  const auto values = [&] {
    return x.numel() == 0 ? at::zeros({samples, x.size(1)}, options)
                          : at::empty({samples, x.size(1)}, options);
  };
  return {.mean = values(), .invstd = values(), .scale = values(), .shift = values(), .count = values()};
}

void coefficients(const Tensor& packed, const ResponseOptions& options, const Coefficients& k) {
  const channel::Rows moments = rows_of(packed);
  in_precision(k.scale.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T *weight = read<T>(options.weight), *bias = read<T>(options.bias),
            *tau = read<T>(options.threshold);
    T *mean = written<T>(k.mean), *invstd = written<T>(k.invstd), *count = written<T>(k.count);
    T *scale = written<T>(k.scale), *shift = written<T>(k.shift);
    for (int64_t i = 0; i < k.scale.numel(); ++i) {
      const int64_t c = i % moments.channels, sample = i / moments.channels;
      const double n = channel::at_least_one(moments.count(sample)), m = moments.mean(sample, c);
      const T s = static_cast<T>(1.0 / sqrt(moments.m2(sample, c) / n + m * m + options.eps));
      count[i] = static_cast<T>(n);
      mean[i] = T(0);
      invstd[i] = s;
      scale[i] = weight == nullptr ? s : s * weight[c];
      shift[i] = (bias == nullptr ? T(0) : bias[c]) - (tau == nullptr ? T(0) : tau[c]);
    }
  });
}

// sums: [samples, 2, C], A and B of each channel; total: [C], the sum of dy, or undefined without tau.
BackwardCoefficients backward_coefficients(const Coefficients& k, const Tensor& sums, const Tensor& total,
                                           const Tensor& weight, const ResponseGradients& to) {
  const int64_t samples = sums.size(0), channels = sums.size(2);
  const auto values = [&] { return at::empty({samples, channels}, sums.options()); };
  const BackwardCoefficients out{.mean = k.mean, .a = values(), .b = values(), .c = values()};
  in_precision(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const T *sum = read<T>(sums), *invstd = read<T>(k.invstd), *count = read<T>(k.count);
    const T *gamma = read<T>(weight), *all = read<T>(total);
    T *a = written<T>(out.a), *b = written<T>(out.b), *shift = written<T>(out.c);
    T *dweight = written<T>(to.dweight), *dbias = written<T>(to.dbias), *dtau = written<T>(to.dthreshold);
    for (int64_t c = 0; c < channels; ++c) {
      double sum_a = 0, sum_b = 0;
      for (int64_t n = 0; n < samples; ++n) {
        const int64_t i = n * channels + c;
        const double s = static_cast<double>(invstd[i]),
                     scale = gamma == nullptr ? s : s * static_cast<double>(gamma[c]);
        const double of_a = static_cast<double>(sum[2 * n * channels + c]);
        const double of_b = static_cast<double>(sum[(2 * n + 1) * channels + c]);
        a[i] = static_cast<T>(scale);
        b[i] = static_cast<T>(-scale * (s * s) * of_b / static_cast<double>(count[i]));
        shift[i] = T(0);
        sum_a += of_a;
        sum_b += of_b * s;
      }
      if (dbias != nullptr) dbias[c] = static_cast<T>(sum_a);
      if (dweight != nullptr) dweight[c] = static_cast<T>(sum_b);
      if (dtau != nullptr) dtau[c] = static_cast<T>(static_cast<double>(all[c]) - sum_a);
    }
  });
  return out;
}

}  // namespace

Response response(const Tensor& x, const Offsets& rows, const Tensor& residual,
                  const ResponseOptions& options) {
  Response out{.y = {}, .z = {}, .k = empty_coefficients(x, rows)};
  const Tensor& tau = options.threshold;
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda()) {
    Tensor dense = x;
    const Layout layout = make_dense("response", dense, rows);
    out.y = at::empty_like(dense);
    out.k.mean = out.k.count = Tensor();
    {
      const OneKernel sums;
    }
    const OneKernel writes;
    if (x.numel() == 0) return out;
    cuda::response_forward(
        layout, {.x = dense,
                 .residual = residual.defined() ? like("response", "residual", residual, dense) : Tensor(),
                 .y = out.y,
                 .invstd = out.k.invstd,
                 .scale = out.k.scale,
                 .shift = out.k.shift,
                 .weight = options.weight,
                 .bias = options.bias,
                 .threshold = tau,
                 .eps = options.eps,
                 .relu = options.activation == Activation::relu});
    return out;
  }
#endif
  {
    const OneKernel sums;
    coefficients(moments(x, rows), options, out.k);
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
  ResponseGradients out;
  const auto room = [&](const Tensor& p) {
    return !p.defined() ? Tensor() : x.numel() == 0 ? at::zeros_like(p) : at::empty_like(p);
  };
  out.dweight = room(options.weight);
  out.dbias = room(options.bias);
  out.dthreshold = room(tau);
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda()) {
    const char* where = "response_gradients";
    Tensor dense = x;
    const Layout layout = make_dense(where, dense, in.offsets);
    if (with_x) out.dx = at::empty_like(dense);
    if (with_residual) out.dresidual = at::empty_like(dense);
    {
      const OneKernel sums;
    }
    const OneKernel writes;
    if (x.numel() == 0) return out;
    cuda::response_backward(
        layout, {.x = dense,
                 .residual = residual.defined() ? like(where, "residual", residual, dense) : Tensor(),
                 .dy = like(where, "dy", in.dy, dense),
                 .dx = out.dx,
                 .dresidual = out.dresidual,
                 .invstd = k.invstd,
                 .scale = k.scale,
                 .shift = k.shift,
                 .weight = options.weight,
                 .dweight = out.dweight,
                 .dbias = out.dbias,
                 .dthreshold = out.dthreshold,
                 .relu = in.activation == Activation::relu});
    return out;
  }
#endif
  BackwardCoefficients step;
  {
    const OneKernel sums;
    Tensor total;
    if (tau.defined()) {
      std::vector<int64_t> but_channels(static_cast<size_t>(x.dim()) - 1, 0);
      std::iota(but_channels.begin() + 1, but_channels.end(), 2);
      total = at::sum(in.dy, but_channels, /*keepdim=*/false, tau.scalar_type());
    }
    step = backward_coefficients(k, in.sums(in.mean), total, options.weight, out);
  }
  const OneKernel writes;
  if (with_x) out.dx = in.input_gradient(in.mean, step.a, step.b, step.c);
  if (with_residual) out.dresidual = in.g();
  return out;
}

}  // namespace bnlab::kernels
