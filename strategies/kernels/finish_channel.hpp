// The arithmetic of finish.hpp for one channel, on raw pointers, for the CPU and for CUDA. T is the
// statistics' precision. Rows of moments are float64, `stride` apart, (n, mean[0..C), M2[0..C)).
#pragma once

#include <cmath>
#include <cstdint>

#include "strategies/kernels/merge_channel.hpp"
#include "strategies/kernels/rows.hpp"

namespace bnlab::kernels {

// By a running pair, which is constant.
template <class T>
struct FinishSaved {
  double eps;
  const T *saved_mean, *saved_var;  // [C]; no variance: 1 / s is 1
  const T *weight, *bias;           // null: 1 and 0
  T *mean, *invstd, *scale, *shift;

  BNLAB_BOTH void operator()(int64_t c) const {
    mean[c] = saved_mean[c];
    invstd[c] = saved_var == nullptr ? T(1) : T(1) / static_cast<T>(sqrt(saved_var[c] + static_cast<T>(eps)));
    scale[c] = weight == nullptr ? invstd[c] : invstd[c] * weight[c];
    shift[c] = bias == nullptr ? T(0) : bias[c];
  }
};

template <class T>
struct FinishForward {
  Rows in;
  int64_t sets;
  Sharing sharing;  // of the rows
  double eps;
  bool mean_only;
  const T *weight, *bias;  // null: 1 and 0
  const T* pair;           // null: no renormalisation
  double r_max, d_max;
  T *mean, *invstd, *scale, *shift, *count, *r, *d;  // [sets, C]

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t s = 0; s < sets; ++s) {
      const int64_t i = s * in.channels + c, row = sharing.row(s);
      const double n = at_least_one(in.count(row)), var = in.m2(row, c) / n + eps;
      count[i] = static_cast<T>(n);
      mean[i] = static_cast<T>(in.mean(row, c));
      invstd[i] = mean_only ? T(1) : static_cast<T>(1.0 / sqrt(var));
      T factor = invstd[i], offset = bias == nullptr ? T(0) : bias[c];
      if (pair != nullptr) {
        const double deviation = sqrt(static_cast<double>(pair[in.channels + c]) + eps);
        r[i] = static_cast<T>(clip(sqrt(var) / deviation, 1 / r_max, r_max));
        d[i] =
            static_cast<T>(clip((in.mean(row, c) - static_cast<double>(pair[c])) / deviation, -d_max, d_max));
        factor = factor * r[i];
        offset = offset + (weight == nullptr ? d[i] : d[i] * weight[c]);
      }
      scale[i] = weight == nullptr ? factor : factor * weight[c];
      shift[i] = offset;
    }
  }
};

template <class T>
struct FinishBackward {
  int64_t sets, channels;
  bool mean_only;
  const T* own;             // [sets, 2, C]
  const T* shared;          // [rows * summands, 2, C]; null: nothing passes through the moments
  int64_t summands;         // that are still to be added up to a row
  Sharing sharing;          // of the rows
  const T *count, *invstd;  // [sets, C]; count is read only with `shared`
  const T *r, *d;           // [sets, C]; null: no renormalisation
  const T* weight;          // null: 1
  T *a, *b, *c, *dweight, *dbias;

  BNLAB_BOTH void operator()(int64_t channel) const {
    T sum_b = 0, sum_a = 0, by_d = 0, all_a = 0, all_b = 0;
    int64_t row_now = -1;
    for (int64_t s = 0; s < sets; ++s) {
      const int64_t i = s * channels + channel;
      const T own_a = own[2 * s * channels + channel], own_b = own[(2 * s + 1) * channels + channel];
      const T factor = r == nullptr ? invstd[i] : invstd[i] * r[i];
      sum_a += own_a;
      sum_b += factor * own_b;
      by_d += d == nullptr ? T(0) : d[i] * own_a;
      a[i] = weight == nullptr ? factor : factor * weight[channel];
      b[i] = c[i] = T(0);
      if (shared != nullptr) {
        if (sharing.row(s) != row_now) {
          row_now = sharing.row(s);
          all_a = summed(row_now, channel);
          all_b = summed(row_now, channels + channel);
        }
        const T per_element = -(a[i] / count[i]);
        c[i] = per_element * all_a;
        b[i] = mean_only ? T(0) : per_element * all_b * (invstd[i] * invstd[i]);
      }
    }
    dbias[channel] = sum_a;
    dweight[channel] = sum_b + by_d;
  }

  BNLAB_BOTH T summed(int64_t row, int64_t place) const {
    const T* next = shared + row * summands * 2 * channels + place;
    T sum = *next;
    for (int64_t i = 1; i < summands; ++i) {
      sum += next[i * 2 * channels];
    }
    return sum;
  }
};

template <class T>
struct UpdatePair {
  Rows in;
  int64_t rows;
  const double* weights;  // [2, rows]; with `towers` [3, rows]
  T decay;
  T* held;             // [2, C]
  int64_t* nonfinite;  // one number, or null
  T* towers;           // [towers, 2, C], or null
  double step_weight;  // only with `towers`

  BNLAB_BOTH void operator()(int64_t c) const {
    double mean = 0, var = 0;
    int64_t taken = 0, lost = 0;  // rows that take part; those of them that are not finite
    for (int64_t i = 0; i < rows;) {
      const int64_t tower = tower_of(i);
      T* pair = towers == nullptr ? nullptr : towers + tower * 2 * in.channels;
      double tower_mean = 0, tower_var = 0;
      int64_t finite = 0;
      for (; i < rows && tower_of(i) == tower; ++i) {
        if (weights[rows + i] == 0) {
          continue;
        }
        ++taken;
        T m = static_cast<T>(in.mean(i, c));
        T v = static_cast<T>(in.m2(i, c) / at_least_one(in.count(i) - 1));
        if (m - m == T(0) && v - v == T(0)) {  // a number that is not finite differs from itself by NaN
          ++finite;
          tower_mean += static_cast<double>(m);
          tower_var += static_cast<double>(v);
        } else {
          ++lost;
          if (pair != nullptr) {
            m = pair[c];
            v = pair[in.channels + c];
          }
        }
        mean += static_cast<double>(m) * weights[i];
        var += static_cast<double>(v) * weights[i];
      }
      if (pair != nullptr && finite > 0) {
        const auto n = static_cast<double>(finite);
        pair[c] = pair[c] * decay + static_cast<T>(tower_mean / n * step_weight);
        pair[in.channels + c] = pair[in.channels + c] * decay + static_cast<T>(tower_var / n * step_weight);
      }
    }
    if (lost > 0) {
      count(towers == nullptr ? 1 : lost);
    }
    if (lost == 0 || (towers != nullptr && lost < taken)) {
      held[c] = held[c] * decay + static_cast<T>(mean);
      held[in.channels + c] = held[in.channels + c] * decay + static_cast<T>(var);
    } else if (towers !=
               nullptr) {  // the same, in a form that leaves a single tower's pair as it was, to the bit
      held[c] += static_cast<T>(mean - static_cast<double>(held[c]) * step_weight);
      held[in.channels + c] += static_cast<T>(var - static_cast<double>(held[in.channels + c]) * step_weight);
    }
  }

  BNLAB_BOTH int64_t tower_of(int64_t row) const {
    return towers == nullptr ? 0 : static_cast<int64_t>(weights[2 * rows + row]);
  }

  BNLAB_BOTH void count(int64_t n) const {
    if (nonfinite == nullptr) {
      return;
    }
#ifdef __CUDA_ARCH__
    atomicAdd(reinterpret_cast<unsigned long long*>(nonfinite), static_cast<unsigned long long>(n));
#else
    *nonfinite += n;
#endif
  }
};

// The steps of a channel after moments have met, in this order: renormalisation reads the pair before its update.
template <class T>
struct PooledForwardSteps {
  Content content;
  bool updates;
  MergeMoments<T> merge;
  MomentsOfSums moments;
  FinishForward<T> forward;
  UpdatePair<T> pair;

  BNLAB_BOTH void operator()(int64_t c) const {
    if (content == Content::towers) {
      merge(c);
    } else if (content == Content::sums) {
      moments(c);
    }
    forward(c);
    if (updates) {
      pair(c);
    }
  }
};

}  // namespace bnlab::kernels
