// The gradients of t = tanh(alpha x), alpha being one number (dynamic_tanh), in one launch on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "strategies/kernels/channel.hpp"

namespace bnlab::kernels {

struct SquashGradient {
  at::Tensor dx;     // alpha u with u = dt (1 - t^2), like x
  at::Tensor terms;  // u x, like x: the sum of all is the gradient of alpha
};

// dt, x, t: of the same shape, layout and dtype (float32 or float64), dense. alpha: [1] of that dtype.
SquashGradient squash_gradient(const at::Tensor& dt, const at::Tensor& x, const at::Tensor& t,
                               const at::Tensor& alpha);

namespace channel {

template <class T>
struct SquashBackward {
  const T *dt = nullptr, *x = nullptr, *t = nullptr, *alpha = nullptr;
  T *dx = nullptr, *terms = nullptr;

  BNLAB_BOTH void operator()(int64_t i) const {
    const T u = dt[i] * (T(1) - t[i] * t[i]);
    dx[i] = *alpha * u;
    terms[i] = u * x[i];
  }
};

}  // namespace channel
}  // namespace bnlab::kernels
