#include "strategies/kernels/squash.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>
#include <ATen/ops/zeros_like.h>

#include "harness/support/kernel_count.hpp"

namespace bnlab::kernels {

using at::Tensor;

namespace {

Coefficients coefficients(const Tensor& x, const SquashOptions& options) {
  return affine_coefficients(x.size(1), options.alpha.options(), options.weight, options.bias);
}

}  // namespace

Squash squash(const Tensor& x, const Tensor& residual, const SquashOptions& options) {
  const OneKernel counted;
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda()) {
    Tensor dense = x;
    const Layout layout = make_dense("squash", dense, {0, x.size(0)});
    const Tensor y = at::empty_like(dense);
    if (x.numel() == 0) return {.y = y, .t = {}};
    cuda::squash_forward(
        layout, {.x = dense,
                 .residual = residual.defined() ? like("squash", "residual", residual, dense) : Tensor(),
                 .y = y,
                 .alpha = options.alpha,
                 .weight = options.weight,
                 .bias = options.bias,
                 .relu = options.activation == Activation::relu});
    return {.y = y, .t = {}};
  }
#endif
  const Tensor t = at::tanh(at::mul(x, options.alpha));
  const Coefficients k = coefficients(x, options);
  return {.y = normalise(t, {0, t.size(0)}, k.mean, k.scale, k.shift, options.activation, residual), .t = t};
}

// The gradients behind tanh are those of a norm whose moments are the constants 0 and 1.
SquashGradients squash_gradients(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& t,
                                 const SquashOptions& options, bool with_residual) {
  const bool affine = options.weight.defined();
  SquashGradients out;
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda()) {
    const char* where = "squash_gradients";
    const bool relu = options.activation == Activation::relu;
    Tensor dense = x;
    const Layout layout = make_dense(where, dense, {0, x.size(0)});
    const auto room = [&](const Tensor& p) { return x.numel() == 0 ? at::zeros_like(p) : at::empty_like(p); };
    out.dx = at::empty_like(dense);
    out.dalpha = room(options.alpha);
    if (affine) out.dweight = room(options.weight), out.dbias = room(options.weight);
    const Tensor incoming = like(where, "dy", dy, dense);
    if (with_residual) out.dresidual = relu ? at::empty_like(dense) : incoming;
    {
      const OneKernel sweep;
    }
    const OneKernel sums;
    if (x.numel() == 0) return out;
    cuda::squash_backward(layout, {.x = dense,
                                   .dy = incoming,
                                   .dx = out.dx,
                                   .dresidual = with_residual && relu ? out.dresidual : Tensor(),
                                   .read_y = with_residual && relu ? like(where, "y", y, dense) : Tensor(),
                                   .alpha = options.alpha,
                                   .weight = options.weight,
                                   .bias = options.bias,
                                   .dalpha = out.dalpha,
                                   .dweight = out.dweight,
                                   .dbias = out.dbias,
                                   .relu = relu});
    return out;
  }
#endif
  Tensor terms;
  {
    const OneKernel sweep;
    const Coefficients forward = coefficients(x, options);
    const Incoming in{.dy = dy,
                      .x = t,
                      .y = y,
                      .offsets = {0, t.size(0)},
                      .activation = options.activation,
                      .mean = forward.mean,
                      .from_input = {}};
    const BackwardCoefficients k =
        local_backward(in, {.mean = forward.mean, .invstd = forward.invstd},
                       /*through_moments=*/false, /*mean_only=*/false, options.weight);
    const Tensor u = at::tanh_backward(in.input_gradient(in.mean, k.a, k.b, k.c), t);
    out.dx = at::mul(u, options.alpha);
    terms = u.mul_(x);
    if (with_residual) out.dresidual = in.g();
    if (affine) out.dweight = k.dweight, out.dbias = k.dbias;
  }
  const OneKernel sums;
  out.dalpha = terms.sum().view({1});
  return out;
}

}  // namespace bnlab::kernels
