#include "strategies/kernels/squash.hpp"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/tanh_backward.h>

#include "strategies/kernels/each_item.hpp"

namespace bnlab::kernels {

using at::Tensor;

namespace {

bool same_order(const Tensor& a, const Tensor& b) {  // of the elements in memory
  bool same = a.sizes() == b.sizes();
  for (int64_t d = 0; same && d < a.dim(); ++d) same = a.size(d) == 1 || a.stride(d) == b.stride(d);
  return same;
}

}  // namespace

SquashGradient squash_gradient(const Tensor& dt, const Tensor& x, const Tensor& t, const Tensor& alpha) {
  const OneKernel counted;
  TORCH_INTERNAL_ASSERT(same_order(dt, x) && same_order(t, x));
  if (!x.is_cuda() || x.numel() == 0) {  // operations that are vectorised
    const Tensor u = at::tanh_backward(dt, t);
    const Tensor dx = u * alpha;
    return {.dx = dx, .terms = u.mul_(x)};
  }
  const SquashGradient made{.dx = at::empty_like(x), .terms = at::empty_like(x)};
  in_precision(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::SquashBackward<T> body{
        .dt = dt.const_data_ptr<T>(),
        .x = x.const_data_ptr<T>(),
        .t = t.const_data_ptr<T>(),
        .alpha = alpha.const_data_ptr<T>(),
        .dx = made.dx.mutable_data_ptr<T>(),
        .terms = made.terms.mutable_data_ptr<T>(),
    };
    each_item(body, x.numel(), x);
  });
  return made;
}

}  // namespace bnlab::kernels
