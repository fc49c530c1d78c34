// The arithmetic of coefficients.hpp for one item, on raw pointers: the CPU calls these functions in a loop,
// CUDA in one thread per item (each_item.hpp), or at the end of a sweep (cuda.cuh). An item is a channel, but
// for `SumTowers` (a column of what a tower holds) and for the norms within samples (a lane of a group of
// channels). T is the precision of the statistics; moments are float64. The formulas stand at the head of
// coefficients.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "strategies/kernels/coefficients.hpp"

#ifdef __CUDACC__
#define BNLAB_BOTH __host__ __device__
#else
#define BNLAB_BOTH
#endif

namespace bnlab::kernels::channel {

// Packed moments: rows that are `stride` apart, each (n, mean[0..C), M2[0..C)).
struct Rows {
  const double* data = nullptr;
  int64_t stride = 0, channels = 0;

  BNLAB_BOTH double count(int64_t row) const { return data[row * stride]; }
  BNLAB_BOTH double mean(int64_t row, int64_t c) const { return data[row * stride + 1 + c]; }
  BNLAB_BOTH double m2(int64_t row, int64_t c) const { return data[row * stride + 1 + channels + c]; }
};

// To which group a set of this rank belongs: each `size` consecutive sets of all ranks are one. A kernel
// takes it as an argument, in place of a table that would have to be made on the device.
struct Grouping {
  unsigned first = 0;  // the number of this rank's first set among those of all ranks
  unsigned size = 1;

  BNLAB_BOTH int64_t group(int64_t set) const { return (first + static_cast<unsigned>(set)) / size; }
};

BNLAB_BOTH inline double at_least_one(double n) {
  return n < 1 ? 1 : n;
}

// NaN passes through, as it does not through fmin and fmax.
BNLAB_BOTH inline double clip(double value, double low, double high) {
  return value < low ? low : value > high ? high : value;
}

// Merges the moments of each `group` consecutive rows.
template <class T>
struct MergeMoments {
  Rows in{};
  double* out = nullptr;  // [groups, 1 + 2C]
  int64_t groups = 0, group = 1;
  Merge merge = Merge::chan;

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t k = 0; k < groups; ++k) {
      double* row = out + k * (1 + 2 * in.channels);
      double count = 0;
      for (int64_t i = k * group; i < (k + 1) * group; ++i) {
        count += in.count(i);
      }
      row[0] = count;  // every channel writes the same, and then need not wait for another's
      merge == Merge::e_x2 ? by_squares(k, c, count, row) : by_deviations(k, c, count, row);
    }
  }

  BNLAB_BOTH void by_deviations(int64_t k, int64_t c, double count, double* row) const {
    double sum = 0, within = 0, between = 0;
    for (int64_t i = k * group; i < (k + 1) * group; ++i) {
      sum += in.count(i) * in.mean(i, c);
      within += in.m2(i, c);
    }
    const double mean = sum / at_least_one(count);
    for (int64_t i = k * group; merge == Merge::chan && i < (k + 1) * group; ++i) {
      const double d = in.mean(i, c) - mean;
      between += in.count(i) * (d * d);
    }
    row[1 + c] = mean;
    row[1 + in.channels + c] = within + between;
  }

  BNLAB_BOTH void by_squares(int64_t k, int64_t c, double count, double* row) const {
    T ex = 0, ex2 = 0;
    for (int64_t i = k * group; i < (k + 1) * group; ++i) {
      const double n = in.count(i), m = in.mean(i, c);
      const T weight = static_cast<T>(n / at_least_one(count));
      ex += weight * static_cast<T>(m);
      ex2 += weight * static_cast<T>(in.m2(i, c) / at_least_one(n) + m * m);
    }
    row[1 + c] = static_cast<double>(ex);
    row[1 + in.channels + c] = static_cast<double>(ex2 - ex * ex) * count;
  }
};

// What an all_reduce over the ranks adds up for every group: the sums over those of its towers that this rank
// holds, of (n, n m, M2 + n m^2) by Merge::chan and of (n, n m, M2) by Merge::averaged.
struct SumMoments {
  Rows in{};              // of this rank's towers
  double* out = nullptr;  // [groups, 1 + 2C]
  int64_t groups = 0, towers = 0;
  Grouping grouping{};
  Merge merge = Merge::chan;

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t k = 0; k < groups; ++k) {
      double count = 0, sum = 0, second = 0;
      for (int64_t t = 0; t < towers; ++t) {
        if (grouping.group(t) == k) {
          const double n = in.count(t), m = in.mean(t, c);
          count += n;
          sum += n * m;
          second += merge == Merge::chan ? in.m2(t, c) + n * (m * m) : in.m2(t, c);
        }
      }
      double* row = out + k * (1 + 2 * in.channels);
      row[0] = count;  // every channel writes the same
      row[1 + c] = sum;
      row[1 + in.channels + c] = second;
    }
  }
};

// The moments of every group, from the sums of SumMoments over all ranks.
struct MomentsOfSums {
  Rows in{};
  double* out = nullptr;  // [groups, 1 + 2C]
  int64_t groups = 0;
  Merge merge = Merge::chan;

  BNLAB_BOTH void operator()(int64_t c) const {
    const bool squares = merge == Merge::chan;
    for (int64_t k = 0; k < groups; ++k) {
      double* row = out + k * (1 + 2 * in.channels);
      const double n = in.count(k), mean = in.mean(k, c) / at_least_one(n);
      const double m2 = squares ? in.m2(k, c) - n * (mean * mean) : in.m2(k, c);
      row[0] = n;
      row[1 + c] = mean;
      row[1 + in.channels + c] = squares && m2 < 0 ? 0 : m2;  // NaN passes through
    }
  }
};

// Values of this rank's towers, summed up for every group; for one column of what a tower holds.
template <class T>
struct SumTowers {
  const T* in = nullptr;  // [towers, columns]
  T* out = nullptr;       // [groups, columns]
  int64_t groups = 0, towers = 0, columns = 0;
  Grouping grouping{};

  BNLAB_BOTH void operator()(int64_t column) const {
    for (int64_t k = 0; k < groups; ++k) {
      T sum = 0;
      for (int64_t t = 0; t < towers; ++t) {
        if (grouping.group(t) == k) {
          sum += in[t * columns + column];
        }
      }
      out[k * columns + column] = sum;
    }
  }
};

// Forward coefficients by the moments of each set's group.
template <class T>
struct Forward {
  Rows moments{};  // a row for every group
  int64_t sets = 0;
  Grouping grouping{};
  double eps = 0;
  bool mean_only = false;
  const T *weight = nullptr, *bias = nullptr;  // [C]; null: 1 and 0
  const T* running = nullptr;                  // [2, C] of batch renormalisation; null: none
  double r_max = 1, d_max = 0;
  CoefficientsOf<T*> out{};  // each [sets, C]

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t s = 0; s < sets; ++s) {
      const int64_t i = s * moments.channels + c, row = grouping.group(s);
      const double n = at_least_one(moments.count(row)), var = moments.m2(row, c) / n + eps;
      out.count[i] = static_cast<T>(n);
      out.mean[i] = static_cast<T>(moments.mean(row, c));
      out.invstd[i] = mean_only ? T(1) : static_cast<T>(1.0 / sqrt(var));
      T factor = out.invstd[i], offset = bias == nullptr ? T(0) : bias[c];
      if (running != nullptr) {
        const double deviation = sqrt(static_cast<double>(running[moments.channels + c]) + eps);
        const double distance = (moments.mean(row, c) - static_cast<double>(running[c])) / deviation;
        out.r[i] = static_cast<T>(clip(sqrt(var) / deviation, 1 / r_max, r_max));
        out.d[i] = static_cast<T>(clip(distance, -d_max, d_max));
        factor = factor * out.r[i];
        offset = offset + (weight == nullptr ? out.d[i] : out.d[i] * weight[c]);
      }
      out.scale[i] = weight == nullptr ? factor : factor * weight[c];
      out.shift[i] = offset;
    }
  }
};

// Forward coefficients by running statistics, which are constants.
template <class T>
struct RunningForward {
  double eps = 0;
  const T *running_mean = nullptr, *running_var = nullptr;  // [C]; without a variance s is 1
  const T *weight = nullptr, *bias = nullptr;               // [C]; null: 1 and 0
  CoefficientsOf<T*> out{};                                 // each [C]; neither a count nor r and d

  BNLAB_BOTH void operator()(int64_t c) const {
    out.mean[c] = running_mean[c];
    out.invstd[c] =
        running_var == nullptr ? T(1) : T(1) / static_cast<T>(sqrt(running_var[c] + static_cast<T>(eps)));
    out.scale[c] = weight == nullptr ? out.invstd[c] : out.invstd[c] * weight[c];
    out.shift[c] = bias == nullptr ? T(0) : bias[c];
  }
};

template <class T>
struct Backward {
  int64_t sets = 0, channels = 0;
  bool mean_only = false;
  const T* local_sums = nullptr;  // [sets, 2, C]
  const T* group_sums = nullptr;  // [groups * summands, 2, C]; null: no gradient passes through the moments
  int64_t summands = 1;           // consecutive rows of group_sums that are still to be added up for a group
  Grouping grouping{};
  CoefficientsOf<const T*>
      forward{};              // count, invstd, r and d [sets, C]; without group_sums the count is not read
  const T* weight = nullptr;  // [C]; null: 1
  BackwardCoefficientsOf<T*> out{};  // all but the mean

  BNLAB_BOTH void operator()(int64_t channel) const {
    const T *invstd = forward.invstd, *r = forward.r, *d = forward.d;
    T sum_b = 0, sum_a = 0, by_d = 0, group_a = 0, group_b = 0;
    int64_t group_now = -1;
    for (int64_t s = 0; s < sets; ++s) {
      const int64_t i = s * channels + channel;
      const T local_a = local_sums[2 * s * channels + channel];
      const T local_b = local_sums[(2 * s + 1) * channels + channel];
      const T factor = r == nullptr ? invstd[i] : invstd[i] * r[i];
      sum_a += local_a;
      sum_b += factor * local_b;
      by_d += d == nullptr ? T(0) : d[i] * local_a;
      out.a[i] = weight == nullptr ? factor : factor * weight[channel];
      out.b[i] = out.c[i] = T(0);
      if (group_sums != nullptr) {
        if (grouping.group(s) != group_now) {
          group_now = grouping.group(s);
          group_a = summed(group_now, channel);
          group_b = summed(group_now, channels + channel);
        }
        const T per_element = -(out.a[i] / forward.count[i]);
        out.c[i] = per_element * group_a;
        out.b[i] = mean_only ? T(0) : per_element * group_b * (invstd[i] * invstd[i]);
      }
    }
    out.dbias[channel] = sum_a;
    out.dweight[channel] = sum_b + by_d;
  }

  BNLAB_BOTH T summed(int64_t group, int64_t column) const {
    const T* next = group_sums + group * summands * 2 * channels + column;
    T sum = *next;
    for (int64_t i = 1; i < summands; ++i) {
      sum += next[i * 2 * channels];
    }
    return sum;
  }
};

template <class T>
struct UpdateRunning {
  Rows moments{};
  int64_t rows = 0;
  const double* weights = nullptr;  // [2, rows]; with tower_running [3, rows]
  T decay = 1;
  T* running = nullptr;                // [2, C]
  int64_t* nonfinite_count = nullptr;  // one number, or null
  T* tower_running = nullptr;          // [towers, 2, C], or null
  double step_weight = 0;              // only with tower_running

  BNLAB_BOTH void operator()(int64_t c) const {
    const int64_t channels = moments.channels;
    double mean = 0, var = 0;
    int64_t taken = 0, lost = 0;  // rows that take part; those of them that are not finite
    for (int64_t i = 0; i < rows;) {
      const int64_t tower = tower_of(i);
      T* own = tower_running == nullptr ? nullptr : tower_running + tower * 2 * channels;
      double tower_mean = 0, tower_var = 0;
      int64_t finite = 0;
      for (; i < rows && tower_of(i) == tower; ++i) {
        if (weights[rows + i] == 0) {
          continue;
        }
        ++taken;
        T m = static_cast<T>(moments.mean(i, c));
        T v = static_cast<T>(moments.m2(i, c) / at_least_one(moments.count(i) - 1));
        if (m - m == T(0) && v - v == T(0)) {  // a number that is not finite differs from itself by NaN
          ++finite;
          tower_mean += static_cast<double>(m);
          tower_var += static_cast<double>(v);
        } else {
          ++lost;
          if (own != nullptr) {
            m = own[c];
            v = own[channels + c];
          }
        }
        mean += static_cast<double>(m) * weights[i];
        var += static_cast<double>(v) * weights[i];
      }
      if (own != nullptr && finite > 0) {
        const auto n = static_cast<double>(finite);
        own[c] = own[c] * decay + static_cast<T>(tower_mean / n * step_weight);
        own[channels + c] = own[channels + c] * decay + static_cast<T>(tower_var / n * step_weight);
      }
    }
    if (lost > 0) {
      count(tower_running == nullptr ? 1 : lost);
    }
    if (lost == 0 || (tower_running != nullptr && lost < taken)) {
      running[c] = running[c] * decay + static_cast<T>(mean);
      running[channels + c] = running[channels + c] * decay + static_cast<T>(var);
    } else if (tower_running != nullptr) {
      // The same, in a form that leaves the statistics of a single tower as they were, to the bit.
      running[c] += static_cast<T>(mean - static_cast<double>(running[c]) * step_weight);
      running[channels + c] += static_cast<T>(var - static_cast<double>(running[channels + c]) * step_weight);
    }
  }

  BNLAB_BOTH int64_t tower_of(int64_t row) const {
    return tower_running == nullptr ? 0 : static_cast<int64_t>(weights[2 * rows + row]);
  }

  BNLAB_BOTH void count(int64_t n) const {
    if (nonfinite_count == nullptr) {
      return;
    }
#ifdef __CUDA_ARCH__
    atomicAdd(reinterpret_cast<unsigned long long*>(nonfinite_count), static_cast<unsigned long long>(n));
#else
    *nonfinite_count += n;
#endif
  }
};

// The steps of a channel after an exchange of moments, in this order: renormalisation reads the running
// statistics before their update.
template <class T>
struct PooledForward {
  PooledLayout layout = PooledLayout::groups;
  bool updates = false;
  MergeMoments<T> merge{};          // of PooledLayout::towers
  MomentsOfSums moments_of_sums{};  // of PooledLayout::group_sums
  Forward<T> forward{};
  UpdateRunning<T> update{};

  BNLAB_BOTH void operator()(int64_t c) const {
    if (layout == PooledLayout::towers) {
      merge(c);
    } else if (layout == PooledLayout::group_sums) {
      moments_of_sums(c);
    }
    forward(c);
    if (updates) {
      update(c);
    }
  }
};

// Forward coefficients of norms within samples; sums over channels are taken in float64. The items are
// numbered by sample, then group of channels, then lane: the lanes of a group take the same sums, and each
// writes the coefficients of its own part of the channels.
template <class T>
struct SampleForward {
  Rows moments{};  // a row for every sample
  int64_t groups = 1, lanes = 1;
  double eps = 0;
  const T *weight = nullptr, *bias = nullptr;  // [C]; null: 1 and 0
  CoefficientsOf<T*> out{};                    // each [samples, C]; no r and d

  BNLAB_BOTH void operator()(int64_t item) const {
    const int64_t lane = item % lanes, group = item / lanes % groups, sample = item / lanes / groups;
    const int64_t size = moments.channels / groups, first = group * size, end = first + size;
    const double positions = moments.count(sample), n = at_least_one(positions * static_cast<double>(size));
    double sum = 0, m2 = 0;
    for (int64_t c = first; c < end; ++c) {
      sum += moments.mean(sample, c);
    }
    const double group_mean = sum / static_cast<double>(size);
    for (int64_t c = first; c < end; ++c) {
      const double d = moments.mean(sample, c) - group_mean;
      m2 += moments.m2(sample, c) + positions * (d * d);
    }
    const T s = static_cast<T>(1.0 / sqrt(m2 / n + eps));
    for (int64_t c = first + lane; c < end; c += lanes) {
      const int64_t i = sample * moments.channels + c;
      out.count[i] = static_cast<T>(n);
      out.mean[i] = static_cast<T>(group_mean);
      out.invstd[i] = s;
      out.scale[i] = weight == nullptr ? s : s * weight[c];
      out.shift[i] = bias == nullptr ? T(0) : bias[c];
    }
  }
};

// The first samples * groups * lanes items are numbered as above; each of the others sums dweight and dbias
// of a channel.
template <class T>
struct SampleBackward {
  int64_t samples = 0, channels = 0, groups = 1, lanes = 1;
  const T* sums = nullptr;             // [samples, 2, C]
  CoefficientsOf<const T*> forward{};  // count and invstd [samples, C]
  const T* weight = nullptr;           // [C]; null: 1
  BackwardCoefficientsOf<T*> out{};    // all but the mean

  BNLAB_BOTH void operator()(int64_t item) const {
    const int64_t all = samples * groups * lanes;
    item < all ? of_group(item / lanes / groups, item / lanes % groups, item % lanes)
               : of_parameters(item - all);
  }

  BNLAB_BOTH void of_group(int64_t sample, int64_t group, int64_t lane) const {
    const int64_t size = channels / groups, first = group * size, end = first + size;
    const T *sum_a = sums + 2 * sample * channels, *invstd = forward.invstd;
    double all_a = 0, all_b = 0;
    for (int64_t k = first; k < end; ++k) {
      const double gamma = weight == nullptr ? 1 : static_cast<double>(weight[k]);
      all_a += gamma * static_cast<double>(sum_a[k]);
      all_b += gamma * static_cast<double>(sum_a[channels + k]);
    }
    const int64_t start = sample * channels;
    const double s = static_cast<double>(invstd[start + first]);
    const double per_element = -s / static_cast<double>(forward.count[start + first]);
    for (int64_t k = first + lane; k < end; k += lanes) {
      out.a[start + k] = weight == nullptr ? invstd[start + k] : invstd[start + k] * weight[k];
      out.b[start + k] = static_cast<T>(per_element * all_b * (s * s));
      out.c[start + k] = static_cast<T>(per_element * all_a);
    }
  }

  BNLAB_BOTH void of_parameters(int64_t channel) const {
    double sum_a = 0, sum_b = 0;
    for (int64_t n = 0; n < samples; ++n) {
      sum_a += static_cast<double>(sums[2 * n * channels + channel]);
      sum_b += static_cast<double>(sums[(2 * n + 1) * channels + channel]) *
               static_cast<double>(forward.invstd[n * channels + channel]);
    }
    out.dbias[channel] = static_cast<T>(sum_a);
    out.dweight[channel] = static_cast<T>(sum_b);
  }
};

}  // namespace bnlab::kernels::channel
