#include "strategies/kernels/squash.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tanh_backward.h>

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
    const LayerTensors in = layer_tensors("squash", x, {0, x.size(0)}, residual, options.activation);
    if (x.numel() > 0) cuda::squash_forward(in, options);
    return {.y = in.out, .t = {}};
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
    LayerTensors in = layer_tensors(where, x, {0, x.size(0)}, /*residual=*/{}, options.activation);
    in.dy = like(where, "dy", dy, in.x);
    if (with_residual && in.relu) {
      in.residual = like(where, "y", y, in.x);
      in.dresidual = at::empty_like(in.x);
    }
    out = {.dx = in.out,
           .dresidual = !with_residual ? Tensor()
                        : in.relu      ? in.dresidual
                                       : in.dy,
           .dalpha = empty_gradient(options.alpha, x),
           .dweight = empty_gradient(options.weight, x),
           .dbias = empty_gradient(options.weight, x)};
    {
      const OneKernel sweep;
    }
    const OneKernel sums;
    if (x.numel() > 0) cuda::squash_backward(in, options, out);
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
