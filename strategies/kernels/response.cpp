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
        .moments = {.data = rows.const_data_ptr<double>(), .stride = rows.stride(0), .channels = channels},
        .eps = eps,
        .weight = given<T>(weight),
        .bias = given<T>(bias),
        .threshold = given<T>(threshold),
        .out = {.mean = k.mean.mutable_data_ptr<T>(),
                .invstd = k.invstd.mutable_data_ptr<T>(),
                .scale = k.scale.mutable_data_ptr<T>(),
                .shift = k.shift.mutable_data_ptr<T>(),
                .count = k.count.mutable_data_ptr<T>()},
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
        .sums = given<T>(sums),
        .forward = {.invstd = given<T>(forward.invstd), .count = given<T>(forward.count)},
        .weight = given<T>(weight),
        .total = given<T>(total),
        .out = {.a = k.a.mutable_data_ptr<T>(),
                .b = k.b.mutable_data_ptr<T>(),
                .c = k.c.mutable_data_ptr<T>(),
                .dweight = k.dweight.mutable_data_ptr<T>(),
                .dbias = k.dbias.mutable_data_ptr<T>()},
        .dthreshold = dthreshold.defined() ? dthreshold.mutable_data_ptr<T>() : nullptr,
    };
    each_item(body, samples * channels + channels, sums);
  });
  return k;
}

}  // namespace bnlab::kernels
