#include "strategies/kernels/response.hpp"

#include <ATen/ops/empty.h>

#include "strategies/kernels/each_item.hpp"

namespace bnlab::kernels {

using at::Tensor;

Coefficients response_forward(const Tensor& rows, double eps, const Tensor& weight, const Tensor& bias,
                              const Tensor& threshold, at::ScalarType statistics) {
  const int64_t samples = rows.size(0), channels = (rows.size(1) - 1) / 2;
  const auto values = [&] { return at::empty({samples, channels}, rows.options().dtype(statistics)); };
  const Coefficients k{
      .mean = values(), .invstd = values(), .scale = values(), .shift = values(), .count = values()};
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    const channel::ResponseForward<T> body{
        .moments = rows_of(rows),
        .eps = eps,
        .weight = read<T>(weight),
        .bias = read<T>(bias),
        .threshold = read<T>(threshold),
        .out = {.mean = written<T>(k.mean),
                .invstd = written<T>(k.invstd),
                .scale = written<T>(k.scale),
                .shift = written<T>(k.shift),
                .count = written<T>(k.count)},
    };
    each_item(body, samples * channels, rows);
  });
  return k;
}

BackwardCoefficients response_backward(const Coefficients& forward, const Tensor& sums, const Tensor& weight,
                                       const Tensor& total, const Tensor& dthreshold) {
  const int64_t samples = sums.size(0), channels = sums.size(2);
  const auto values = [&] { return at::empty({samples, channels}, sums.options()); };
  const auto of_parameter = [&] { return at::empty({channels}, sums.options()); };
  const BackwardCoefficients k{.mean = forward.mean,
                               .a = values(),
                               .b = values(),
                               .c = values(),
                               .dweight = of_parameter(),
                               .dbias = of_parameter()};
  in_precision(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::ResponseBackward<T> body{
        .samples = samples,
        .channels = channels,
        .sums = read<T>(sums),
        .forward = {.invstd = read<T>(forward.invstd), .count = read<T>(forward.count)},
        .weight = read<T>(weight),
        .total = read<T>(total),
        .out = {.a = written<T>(k.a),
                .b = written<T>(k.b),
                .c = written<T>(k.c),
                .dweight = written<T>(k.dweight),
                .dbias = written<T>(k.dbias)},
        .dthreshold = dthreshold.defined() ? written<T>(dthreshold) : nullptr,
    };
    each_item(body, samples * channels + channels, sums);
  });
  return k;
}

}  // namespace bnlab::kernels
