#include "strategies/kernels/finish.hpp"

#include <ATen/ops/empty.h>

#include "harness/network.hpp"
#include "strategies/kernels/finish_steps.hpp"

namespace bnlab::kernels {

#ifdef BNLAB_WITH_CUDA
namespace cuda {
template <class Body>
void each_channel(const Body& body, int64_t channels, at::Device device);  // finish.cu
}
#endif

namespace {

using at::Tensor;

template <class Body>
void each_channel(const Body& body, int64_t channels, [[maybe_unused]] const Tensor& on) {
#ifdef BNLAB_WITH_CUDA
  if (on.is_cuda()) {
    cuda::each_channel(body, channels, on.device());
    return;
  }
#endif
  for (int64_t c = 0; c < channels; ++c) {
    body(c);
  }
}

// Calls work(T()) with T the C++ type of the statistics' precision.
template <class Work>
auto in_precision(at::ScalarType statistics, const Work& work) {
  return statistics == at::kDouble ? work(double()) : work(float());
}

}  // namespace

Tensor merge_moments(const Tensor& rows, int64_t group, Merge merge, at::ScalarType statistics) {
  const Rows in = rows_of(rows);
  const int64_t groups = rows.size(0) / group;
  const Tensor out = at::empty({groups, rows.size(1)}, rows.options());
  in_precision(statistics, [&](auto zero) {
    each_channel(MergeMoments<decltype(zero)>{in, written<double>(out), groups, group, merge == Merge::chan,
                                              merge == Merge::e_x2},
                 in.channels, rows);
  });
  return out;
}

ForwardStep forward_step(const Tensor& rows, double eps, bool mean_only, const Tensor& weight,
                         const Tensor& bias, at::ScalarType statistics, const std::optional<Renorm>& renorm) {
  const Tensor all =
      at::empty({renorm ? 6 : 4, rows.size(0), rows_of(rows).channels}, rows.options().dtype(statistics));
  Coefficients k{all[0], all[1], all[2], all[3], {}, {}};
  if (renorm) {
    k.r = all[4];
    k.d = all[5];
  }
  return {rows, eps, mean_only, weight, bias, renorm.value_or(Renorm()), k};
}

Coefficients finish_forward(const Tensor& rows, double eps, bool mean_only, const Tensor& weight,
                            const Tensor& bias, at::ScalarType statistics,
                            const std::optional<Renorm>& renorm) {
  const ForwardStep step = forward_step(rows, eps, mean_only, weight, bias, statistics, renorm);
  in_precision(statistics,
               [&](auto zero) { each_channel(step.body<decltype(zero)>(), rows_of(rows).channels, rows); });
  return step.out;
}

BackwardStep backward_step(const Coefficients& forward, const Tensor& own, const Tensor& shared,
                           const Tensor& rows, bool mean_only, const Tensor& weight) {
  const int64_t sets = own.size(0), channels = own.size(2);
  const Tensor all = at::empty({3, sets, channels}, own.options());
  const Tensor of_parameters = at::empty({2, channels}, own.options());
  return {forward,
          own,
          shared,
          rows,
          mean_only,
          weight,
          {forward.mean, all[0], all[1], all[2], of_parameters[0], of_parameters[1]}};
}

BackwardCoefficients finish_backward(const Coefficients& forward, const Tensor& own, const Tensor& shared,
                                     const Tensor& rows, bool mean_only, const Tensor& weight) {
  const BackwardStep step = backward_step(forward, own, shared, rows, mean_only, weight);
  in_precision(own.scalar_type(),
               [&](auto zero) { each_channel(step.body<decltype(zero)>(), own.size(2), own); });
  return step.out;
}

void update_pair(const PairStep& step, const Tensor& rows) {
  in_precision(step.held.scalar_type(), [&](auto zero) {
    each_channel(pair_body<decltype(zero)>(step, rows), rows_of(rows).channels, rows);
  });
}

}  // namespace bnlab::kernels
