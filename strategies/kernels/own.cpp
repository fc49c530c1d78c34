#include "strategies/kernels/own.hpp"

#include <ATen/ops/empty.h>

#include "harness/kernel_count.hpp"
#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/finish_steps.hpp"

namespace bnlab::kernels {

using at::Tensor;

OwnForward own_forward(const Tensor& x, const Offsets& offsets, double eps, bool mean_only,
                       const Tensor& weight, const Tensor& bias, const std::optional<Renorm>& renorm,
                       const std::optional<PairStep>& pair) {
  const OneKernel counted;
  const at::ScalarType statistics = statistics_type(x.scalar_type());
#ifdef BNLAB_WITH_CUDA
  if (x.is_cuda() && x.numel() > 0) {
    Tensor dense = x;
    const Layout layout = settle("own_forward", dense, offsets);
    Tensor rows = empty_rows(x, offsets);
    const ForwardStep step =
        forward_step(rows, rows.size(0), {}, eps, mean_only, weight, bias, statistics, renorm);
    cuda::moments(layout, offsets, dense, rows, &step, pair ? &*pair : nullptr);
    return {rows, step.out};
  }
#endif
  const Tensor rows = moments(x, offsets);
  const Coefficients k = finish_forward(rows, eps, mean_only, weight, bias, statistics, renorm);
  if (pair) update_pair(*pair, rows);
  return {rows, k};
}

BackwardCoefficients own_backward(const Incoming& incoming, const Coefficients& forward, bool through_moments,
                                  bool mean_only, const Tensor& weight) {
  const OneKernel counted;
#ifdef BNLAB_WITH_CUDA
  const Tensor& x = incoming.x;
  if (x.is_cuda() && x.numel() > 0) {
    Layout layout;
    const Backward in = settle_backward("own_backward", incoming.dy, x, incoming.y, incoming.offsets,
                                        forward.mean, incoming.activation, incoming.from_input, layout);
    const int64_t slices = static_cast<int64_t>(incoming.offsets.size()) - 1;
    Tensor sums = at::empty({slices, 2, layout.channels}, in.mean.options());
    const BackwardStep step = backward_step(forward, sums, through_moments ? sums : Tensor(), /*summands=*/1,
                                            {}, mean_only, weight);
    cuda::backward_sums(layout, incoming.offsets, in, sums, &step);
    return step.out;
  }
#endif
  const Tensor sums = incoming.sums(forward.mean);
  return finish_backward(forward, sums, through_moments ? sums : Tensor(), mean_only, weight);
}

}  // namespace bnlab::kernels
