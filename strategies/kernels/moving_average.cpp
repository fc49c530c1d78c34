#include "strategies/kernels/moving_average.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/each_item.hpp"

namespace bnlab::kernels {

using at::Tensor;

MovingWindows::MovingWindows(int64_t towers, int64_t window, int64_t channels,
                             const at::TensorOptions& statistics)
    : squares(at::zeros({towers, window, channels}, statistics)),
      products(at::zeros({towers, window, channels}, statistics)),
      square_counts(at::zeros({towers, channels}, statistics.dtype(at::kLong))),
      product_counts(at::zeros({towers, channels}, statistics.dtype(at::kLong))) {}

MovingForward moving_forward(const Tensor& rows, MovingWindows* windows, const MovingOptions& options,
                             const std::optional<RunningUpdate>& update, const Tensor& weight,
                             const Tensor& bias, at::ScalarType statistics) {
  const int64_t towers = rows.size(0), channels = (rows.size(1) - 1) / 2;
  const MovingForward made{
      .rows = at::empty(rows.sizes(), rows.options()),
      .coefficients = empty_coefficients(towers, channels, rows.options().dtype(statistics),
                                         /*with_count=*/true, /*with_renorm=*/true)};
  in_precision(statistics, [&](auto zero) {
    using T = decltype(zero);
    const channel::MovingForward<T> body{
        .moments = rows_of(rows),
        .towers = towers,
        .window = windows == nullptr ? 0 : windows->squares.size(1),
        .eps = options.eps,
        .warmup_steps = options.warmup_steps,
        .renorm_from_step = options.renorm_from_step,
        .r_max = options.r_max,
        .weight = read<T>(weight),
        .bias = read<T>(bias),
        .squares = windows == nullptr ? nullptr : written<T>(windows->squares),
        .counts = windows == nullptr ? nullptr : written<int64_t>(windows->square_counts),
        .out = written<T>(made.coefficients),
        .rows = written<double>(made.rows),
        .updates = update.has_value(),
        .update = update ? on_pointers<T>(*update, made.rows) : channel::UpdateRunning<T>{},
    };
    each_item(body, channels, rows);
  });
  return made;
}

BackwardCoefficients moving_backward(const MovingForward& forward, const Tensor& sums, MovingWindows* windows,
                                     const MovingOptions& options, const Tensor& weight) {
  const int64_t towers = sums.size(0), channels = sums.size(2);
  const BackwardCoefficients k = empty_backward_coefficients(forward.coefficients, sums);
  in_precision(sums.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::MovingBackward<T> body{
        .towers = towers,
        .channels = channels,
        .window = windows == nullptr ? 0 : windows->products.size(1),
        .warmup_steps = options.warmup_steps,
        .moments = rows_of(forward.rows),
        .sums = read<T>(sums),
        .forward = read<T>(forward.coefficients),
        .weight = read<T>(weight),
        .products = windows == nullptr ? nullptr : written<T>(windows->products),
        .square_counts = windows == nullptr ? nullptr : read<int64_t>(windows->square_counts),
        .counts = windows == nullptr ? nullptr : written<int64_t>(windows->product_counts),
        .out = written<T>(k),
    };
    each_item(body, channels, sums);
  });
  return k;
}

Tensor centred_filters(const Tensor& filters) {
  const Tensor centred = at::empty_like(filters);
  in_precision(filters.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const channel::CentreFilters<T> body{
        .in = read<T>(filters), .out = written<T>(centred), .values = filters.size(1)};
    each_item(body, filters.size(0), filters);
  });
  return centred;
}

}  // namespace bnlab::kernels
