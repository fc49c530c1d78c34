#include "strategies/kernels/sample_steps.hpp"

#include <ATen/ops/empty.h>

#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/finish_steps.hpp"
#include "strategies/kernels/sample_group.hpp"

namespace bnlab::kernels {

using at::Tensor;

Coefficients sample_forward(const Tensor& rows, int64_t groups, double eps, const Tensor& weight,
                            const Tensor& bias, at::ScalarType statistics) {
  const int64_t samples = rows.size(0);
  const Tensor all = at::empty({5, samples, rows_of(rows).channels}, rows.options().dtype(statistics));
  const Coefficients k{all[0], all[1], all[2], all[3], all[4], {}, {}};
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    const SampleForward<T> body{rows_of(rows),
                                groups,
                                eps,
                                read<T>(weight),
                                read<T>(bias),
                                written<T>(k.mean),
                                written<T>(k.invstd),
                                written<T>(k.scale),
                                written<T>(k.shift),
                                written<T>(k.count)};
    each_item(body, samples * groups, rows);
  });
  return k;
}

BackwardCoefficients sample_backward(const Coefficients& forward, const Tensor& sums, int64_t groups,
                                     const Tensor& weight) {
  const int64_t samples = sums.size(0), channels = sums.size(2);
  const Tensor all = at::empty({3, samples, channels}, sums.options());
  const Tensor of_parameters = at::empty({2, channels}, sums.options());
  const BackwardCoefficients k{forward.mean, all[0], all[1], all[2], of_parameters[0], of_parameters[1]};
  in_precision(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const SampleBackward<T> body{samples,
                                 channels,
                                 groups,
                                 read<T>(sums),
                                 read<T>(forward.count),
                                 read<T>(forward.invstd),
                                 read<T>(weight),
                                 written<T>(k.a),
                                 written<T>(k.b),
                                 written<T>(k.c),
                                 written<T>(k.dweight),
                                 written<T>(k.dbias)};
    each_item(body, samples * groups + channels, sums);
  });
  return k;
}

}  // namespace bnlab::kernels
