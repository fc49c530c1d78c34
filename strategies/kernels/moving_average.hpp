// The steps of moving-average batch normalisation between the sweeps (Yan et al. 2020), as those of
// kernels.hpp, about the mean 0. Each is one launch on CUDA, which updates the running statistics, too,
// so that a site takes three kernels forward and three backward; and the centring of its convolution's
// filters, one more each.
//
// Every tower and channel has two windows of its last W values: of the second moment E[x^2], and of the
// gradient's moment, the mean of g z over the tower, where z = s x and g = gamma r dy. With their means X and
// P, or while they are not full the step's own values, s = 1 / sqrt(X + eps) and r = clip(sqrt(X + eps) /
// sqrt(running + eps), 1 / r_max, r_max), which is a constant,
//   forward    y = gamma r s x + beta
//   backward   dx = s (g - z P); dgamma = sum r s x dy, dbeta = sum dy over the towers of this rank
// Values that are not finite enter no window.
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

// What is remembered for each of this rank's G towers.
struct MovingWindows {
  at::Tensor squares, products;              // [G, W, C], in the precision of the statistics
  at::Tensor square_counts, product_counts;  // int64 [G, C]: values that have entered

  MovingWindows() = default;
  MovingWindows(int64_t towers, int64_t window, int64_t channels, const at::TensorOptions& statistics);
};

struct MovingOptions {
  double eps = 0;
  int64_t warmup_steps = 0;      // the step's own values normalise before step number warmup_steps, from 1
  int64_t renorm_from_step = 0;  // r is 1 up to this step
  double r_max = 1;
};

struct MovingForward {
  at::Tensor rows;  // [G, 1 + 2C]: n, 0 and n X: what is remembered, packed as moments
  Coefficients coefficients;
};
// rows: [G, 1 + 2C], as kernels::moments returns them. windows: null: the step's own values normalise, and
// nothing is remembered. update: of the running statistics by what is remembered, once r has read those of
// each tower, update->tower_running.
MovingForward moving_forward(const at::Tensor& rows, MovingWindows* windows, const MovingOptions& options,
                             const std::optional<RunningUpdate>& update, const at::Tensor& weight,
                             const at::Tensor& bias, at::ScalarType statistics);

// sums: [G, 2, C], A and B of each tower.
BackwardCoefficients moving_backward(const MovingForward& forward, const at::Tensor& sums,
                                     MovingWindows* windows, const MovingOptions& options,
                                     const at::Tensor& weight);

// filters less their means: [out, values of a filter], contiguous. It is its own derivative.
at::Tensor centred_filters(const at::Tensor& filters);

namespace channel {

// The window of one tower and channel; its values are `stride` apart.
template <class T>
struct Window {
  T* values = nullptr;
  int64_t size = 0, stride = 0;

  BNLAB_BOTH void enter(double value, int64_t count) const {  // as value number `count`, from 1
    values[(count - 1) % size * stride] = static_cast<T>(value);
  }
  BNLAB_BOTH double mean(int64_t count) const {
    const int64_t held = count < size ? count : size;
    double sum = 0;
    for (int64_t i = 0; i < held; ++i) sum += static_cast<double>(values[i * stride]);
    return sum / static_cast<double>(held);
  }
};

// Whether it is finite once it is rounded to T, which a window holds.
template <class T>
BNLAB_BOTH bool is_finite_as(double value) {
  const T rounded = static_cast<T>(value);
  return rounded - rounded == T(0);
}

template <class T>
struct MovingForward {
  Rows moments{};
  int64_t towers = 0, window = 0;
  double eps = 0;
  int64_t warmup_steps = 0, renorm_from_step = 0;
  double r_max = 1;
  const T *weight = nullptr, *bias = nullptr;  // [C]; or null
  T* squares = nullptr;                        // [towers, W, C], or null
  int64_t* counts = nullptr;                   // [towers, C]
  CoefficientsOf<T*> out{};                    // each [towers, C]; no d
  double* rows = nullptr;                      // [towers, 1 + 2C]
  bool updates = false;
  UpdateRunning<T> update{};

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t tower = 0; tower < towers; ++tower) of_tower(tower, c);
    if (updates) update(c);
  }

  BNLAB_BOTH void of_tower(int64_t tower, int64_t c) const {
    const int64_t channels = moments.channels, i = tower * channels + c;
    const double count = moments.count(tower), m = moments.mean(tower, c);
    const double own = moments.m2(tower, c) / at_least_one(count) + m * m;
    double second = own;
    int64_t k = 0;
    if (squares != nullptr && count > 0 && is_finite_as<T>(own)) {
      const Window<T> past{squares + tower * window * channels + c, window, channels};
      k = ++counts[i];
      past.enter(own, k);
      second = k > window && k >= warmup_steps ? past.mean(k) : own;
    }
    const double deviation = sqrt(second + eps);
    double r = 1;
    if (updates && k > renorm_from_step && k > warmup_steps) {
      const double before = static_cast<double>(update.tower_running[(2 * tower + 1) * channels + c]);
      r = clip(deviation / sqrt(before + eps), 1 / r_max, r_max);
    }
    out.count[i] = static_cast<T>(at_least_one(count));
    out.mean[i] = T(0);
    out.invstd[i] = static_cast<T>(1 / deviation);
    out.r[i] = static_cast<T>(r);
    const T factor = out.invstd[i] * out.r[i];
    out.scale[i] = weight == nullptr ? factor : factor * weight[c];
    out.shift[i] = bias == nullptr ? T(0) : bias[c];
    double* row = rows + tower * (1 + 2 * channels);
    row[0] = count;  // every channel writes the same
    row[1 + c] = 0;
    row[1 + channels + c] = second * count;
  }
};

template <class T>
struct MovingBackward {
  int64_t towers = 0, channels = 0, window = 0, warmup_steps = 0;
  Rows moments{};                          // what the forward pass left
  const T* sums = nullptr;                 // [towers, 2, C]
  CoefficientsOf<const T*> forward{};      // count, invstd and r [towers, C]
  const T* weight = nullptr;               // [C]; or null
  T* products = nullptr;                   // [towers, W, C], or null
  const int64_t* square_counts = nullptr;  // [towers, C], beside `products`
  int64_t* counts = nullptr;               // likewise
  BackwardCoefficientsOf<T*> out{};        // all but the mean

  BNLAB_BOTH void operator()(int64_t c) const {
    double sum_a = 0, sum_b = 0;
    for (int64_t tower = 0; tower < towers; ++tower) {
      const int64_t i = tower * channels + c;
      sum_a += static_cast<double>(sums[2 * tower * channels + c]);
      sum_b += static_cast<double>(sums[(2 * tower + 1) * channels + c]) *
               static_cast<double>(forward.invstd[i]) * static_cast<double>(forward.r[i]);
      of_tower(tower, c);
    }
    out.dbias[c] = static_cast<T>(sum_a);
    out.dweight[c] = static_cast<T>(sum_b);
  }

  BNLAB_BOTH void of_tower(int64_t tower, int64_t c) const {
    const int64_t i = tower * channels + c;
    const double s = static_cast<double>(forward.invstd[i]);
    double a = s * static_cast<double>(forward.r[i]);
    a = weight == nullptr ? a : a * static_cast<double>(weight[c]);
    const double own =
        a * static_cast<double>(sums[(2 * tower + 1) * channels + c]) / static_cast<double>(forward.count[i]);
    double product = own;
    if (products != nullptr && moments.count(tower) > 0 && is_finite_as<T>(own)) {
      const Window<T> past{products + tower * window * channels + c, window, channels};
      const int64_t k = ++counts[i], step = square_counts[i];
      past.enter(own, k);
      product = step > window && step >= warmup_steps ? past.mean(k) : own;
    }
    out.a[i] = static_cast<T>(a);
    out.b[i] = static_cast<T>(-(s * s) * product);
    out.c[i] = T(0);
  }
};

// An item is a filter, whose values several threads may share.
template <class T>
struct CentreFilters {
  const T* in = nullptr;
  T* out = nullptr;    // [filters, values]
  int64_t values = 0;  // of a filter

  BNLAB_BOTH int64_t rows() const { return values; }

  template <class Lanes = Alone>
  BNLAB_BOTH void operator()(int64_t filter, const Lanes& team = {}) const {
    const T* from = in + filter * values;
    double sum = 0;
    for (int64_t i = team.lane(); i < values; i += team.lanes()) sum += static_cast<double>(from[i]);
    const T mean = static_cast<T>(team.sum(sum) / static_cast<double>(values));
    for (int64_t i = team.lane(); i < values; i += team.lanes()) out[filter * values + i] = from[i] - mean;
  }
};

}  // namespace channel
}  // namespace bnlab::kernels
