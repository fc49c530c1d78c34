#include "strategies/kernels/sample_finish.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/finish_steps.hpp"
#include "strategies/kernels/sample_group.hpp"

namespace bnlab::kernels {

using at::Tensor;

namespace {

// A group of many channels has several threads on a GPU.
int64_t lanes_of(int64_t channels, int64_t groups, const Tensor& on) {
  constexpr int64_t kMost = 32;
  return on.is_cuda() ? std::min(kMost, channels / groups) : 1;
}

}  // namespace

Coefficients sample_forward(const Tensor& rows, int64_t groups, double eps, const Tensor& weight,
                            const Tensor& bias, at::ScalarType statistics) {
  const int64_t samples = rows.size(0), channels = rows_of(rows).channels;
  const int64_t lanes = lanes_of(channels, groups, rows);
  const Tensor all = at::empty({5, samples, channels}, rows.options().dtype(statistics));
  const Coefficients k{all[0], all[1], all[2], all[3], all[4], {}, {}};
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    const SampleForward<T> body{rows_of(rows),
                                groups,
                                lanes,
                                eps,
                                read<T>(weight),
                                read<T>(bias),
                                written<T>(k.mean),
                                written<T>(k.invstd),
                                written<T>(k.scale),
                                written<T>(k.shift),
                                written<T>(k.count)};
    each_item(body, samples * groups * lanes, rows);
  });
  return k;
}

BackwardCoefficients sample_backward(const Coefficients& forward, const Tensor& sums, int64_t groups,
                                     const Tensor& weight) {
  const int64_t samples = sums.size(0), channels = sums.size(2);
  const int64_t lanes = lanes_of(channels, groups, sums);
  const Tensor all = at::empty({3, samples, channels}, sums.options());
  const Tensor of_parameters = at::empty({2, channels}, sums.options());
  const BackwardCoefficients k{forward.mean, all[0], all[1], all[2], of_parameters[0], of_parameters[1]};
  in_precision(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const SampleBackward<T> body{samples,
                                 channels,
                                 groups,
                                 lanes,
                                 read<T>(sums),
                                 read<T>(forward.count),
                                 read<T>(forward.invstd),
                                 read<T>(weight),
                                 written<T>(k.a),
                                 written<T>(k.b),
                                 written<T>(k.c),
                                 written<T>(k.dweight),
                                 written<T>(k.dbias)};
    each_item(body, samples * groups * lanes + channels, sums);
  });
  return k;
}

}  // namespace bnlab::kernels
