// The arithmetic of kernels.hpp for one item, on raw pointers: the CPU calls these functions in a loop,
// CUDA in one thread per item (each_item.hpp), in several where it goes over many towers, or at the end of a
// sweep (cuda.cuh). An item is a channel, but for `SumTowers` (a column of what a tower holds). T is the
// precision of the statistics; moments are float64. The formulas stand at the head of kernels.hpp.
#pragma once

#include <cmath>
#include <cstdint>

#include "strategies/kernels/kernels.hpp"

#ifdef __CUDACC__
#define BNLAB_BOTH __host__ __device__
#define BNLAB_APART __noinline__
#else
#define BNLAB_BOTH
#define BNLAB_APART
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

// Of float64, each takes a GPU dozens of instructions, which stand once in a kernel, not at every use.
BNLAB_BOTH BNLAB_APART inline double quotient(double a, double b) {
  return a / b;
}
BNLAB_BOTH BNLAB_APART inline double root(double value) {
  return sqrt(value);
}

// NaN passes through, as it does not through fmin and fmax.
BNLAB_BOTH BNLAB_APART inline double clip(double value, double low, double high) {
  return value < low ? low : value > high ? high : value;
}

// The threads that work on one item: each takes every lanes()-th row, from row lane() on, and sum() adds up
// what they found, for all of them. Alone one takes all rows, in their order. A thread without an item, which
// only comes along, is lane kNoLane.
constexpr int64_t kNoLane = int64_t{1} << 40;  // more than there are rows
struct Alone {
  BNLAB_BOTH int64_t lane() const { return 0; }
  BNLAB_BOTH int64_t lanes() const { return 1; }
  template <class T>
  BNLAB_BOTH T sum(T value) const {
    return value;
  }
  BNLAB_BOTH void wait() const {}  // for what the others write
};

// Merges the moments of each `group` consecutive rows.
template <class T>
struct MergeMoments {
  Rows in{};
  double* out = nullptr;  // [groups, 1 + 2C]
  int64_t groups = 0, group = 1;
  Merge merge = Merge::chan;

  BNLAB_BOTH int64_t rows() const { return group; }

  template <class Lanes = Alone>
  BNLAB_BOTH void operator()(int64_t c, const Lanes& team = {}) const {
    for (int64_t k = 0; k < groups; ++k) {
      double count = 0;
      for (int64_t i = k * group + team.lane(); i < (k + 1) * group; i += team.lanes()) count += in.count(i);
      count = team.sum(count);
      double* row = out + k * (1 + 2 * in.channels);
      if (team.lane() == 0)
        row[0] = count;  // every channel writes the same, and then need not wait for another's
      merge == Merge::e_x2 ? by_squares(k, c, count, row, team) : by_deviations(k, c, count, row, team);
    }
  }

  template <class Lanes>
  BNLAB_BOTH void by_deviations(int64_t k, int64_t c, double count, double* row, const Lanes& team) const {
    double sum = 0, within = 0, between = 0;
    for (int64_t i = k * group + team.lane(); i < (k + 1) * group; i += team.lanes()) {
      sum += in.count(i) * in.mean(i, c);
      within += in.m2(i, c);
    }
    const double mean = team.sum(sum) / at_least_one(count);
    for (int64_t i = k * group + team.lane(); merge == Merge::chan && i < (k + 1) * group;
         i += team.lanes()) {
      const double d = in.mean(i, c) - mean;
      between += in.count(i) * (d * d);
    }
    within = team.sum(within);
    between = team.sum(between);
    if (team.lane() == 0) {
      row[1 + c] = mean;
      row[1 + in.channels + c] = within + between;
    }
  }

  template <class Lanes>
  BNLAB_BOTH void by_squares(int64_t k, int64_t c, double count, double* row, const Lanes& team) const {
    T ex = 0, ex2 = 0;
    for (int64_t i = k * group + team.lane(); i < (k + 1) * group; i += team.lanes()) {
      const double n = in.count(i), m = in.mean(i, c);
      const T weight = static_cast<T>(n / at_least_one(count));
      ex += weight * static_cast<T>(m);
      ex2 += weight * static_cast<T>(in.m2(i, c) / at_least_one(n) + m * m);
    }
    ex = team.sum(ex);
    ex2 = team.sum(ex2);
    if (team.lane() == 0) {
      row[1 + c] = static_cast<double>(ex);
      row[1 + in.channels + c] = static_cast<double>(ex2 - ex * ex) * count;
    }
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
      for (int64_t t = 0; t < towers; ++t)
        if (grouping.group(t) == k) sum += in[t * columns + column];
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
  double eps = 0, ddof = 0;
  bool mean_only = false;
  const T *weight = nullptr, *bias = nullptr;  // [C]; null: 1 and 0
  const T* running = nullptr;                  // [2, C] of batch renormalisation; null: none
  double r_max = 1, d_max = 0;
  CoefficientsOf<T*> out{};  // each [sets, C]

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t s = 0; s < sets; ++s) of_set(s, c);
  }

  BNLAB_BOTH void of_set(int64_t s, int64_t c) const {
    const int64_t row = grouping.group(s);
    of_set(s, c, moments.count(row), moments.mean(row, c), moments.m2(row, c));
  }

  BNLAB_BOTH void of_set(int64_t s, int64_t c, double count, double mean, double m2) const {
    const int64_t i = s * moments.channels + c;
    const double var = quotient(m2, at_least_one(count - ddof)) + eps;
    const T n = static_cast<T>(count);
    out.count[i] = n < 1 ? T(1) : n;
    out.mean[i] = static_cast<T>(mean);
    out.invstd[i] = mean_only ? T(1) : static_cast<T>(quotient(1.0, root(var)));
    T factor = out.invstd[i], offset = bias == nullptr ? T(0) : bias[c];
    if (running != nullptr) {
      const double deviation = root(static_cast<double>(running[moments.channels + c]) + eps);
      const double distance = quotient(mean - static_cast<double>(running[c]), deviation);
      out.r[i] = static_cast<T>(clip(quotient(root(var), deviation), quotient(1.0, r_max), r_max));
      out.d[i] = static_cast<T>(clip(distance, -d_max, d_max));
      factor = factor * out.r[i];
      offset = offset + (weight == nullptr ? out.d[i] : out.d[i] * weight[c]);
    }
    out.scale[i] = weight == nullptr ? factor : factor * weight[c];
    out.shift[i] = offset;
  }
};

// Forward coefficients by running statistics, which are constants.
template <class T>
struct RunningForward {
  double eps = 0;
  const T *running_mean = nullptr, *running_var = nullptr;  // [C]; null: 0, and s is 1
  const T *weight = nullptr, *bias = nullptr;               // [C]; null: 1 and 0
  CoefficientsOf<T*> out{};                                 // each [C]; neither a count nor r and d

  BNLAB_BOTH void operator()(int64_t c) const {
    out.mean[c] = running_mean == nullptr ? T(0) : running_mean[c];
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

  BNLAB_BOTH int64_t rows() const { return group_sums == nullptr ? 0 : summands; }

  template <class Lanes = Alone>
  BNLAB_BOTH void operator()(int64_t channel, const Lanes& team = {}) const {
    T group_a = 0, group_b = 0;
    int64_t group_now = -1;
    for (int64_t s = 0; s < sets; ++s) {
      if (group_sums != nullptr && grouping.group(s) != group_now) {
        group_now = grouping.group(s);
        group_a = summed(group_now, channel, team);
        group_b = summed(group_now, channels + channel, team);
      }
      if (team.lane() == 0) write(s, channel, group_a, group_b);
    }
    if (team.lane() == 0) of_parameters(channel);
  }

  BNLAB_BOTH void of_set(int64_t s, int64_t channel) const {
    const int64_t group = grouping.group(s);
    group_sums == nullptr
        ? write(s, channel, T(0), T(0))
        : write(s, channel, summed(group, channel, Alone()), summed(group, channels + channel, Alone()));
  }

  BNLAB_BOTH void write(int64_t s, int64_t channel, T group_a, T group_b) const {
    const int64_t i = s * channels + channel;
    const T a = forward.r == nullptr ? forward.invstd[i] : forward.invstd[i] * forward.r[i];
    out.a[i] = weight == nullptr ? a : a * weight[channel];
    out.b[i] = out.c[i] = T(0);
    if (group_sums != nullptr) {
      const T per_element = -(out.a[i] / forward.count[i]);
      out.c[i] = per_element * group_a;
      out.b[i] = mean_only ? T(0) : per_element * group_b * (forward.invstd[i] * forward.invstd[i]);
    }
  }

  BNLAB_BOTH void of_parameters(int64_t channel) const {
    T sum_b = 0, sum_a = 0, by_d = 0;
    for (int64_t s = 0; s < sets; ++s) {
      const int64_t i = s * channels + channel;
      const T local_a = local_sums[2 * s * channels + channel];
      const T local_b = local_sums[(2 * s + 1) * channels + channel];
      sum_a += local_a;
      sum_b += (forward.r == nullptr ? forward.invstd[i] : forward.invstd[i] * forward.r[i]) * local_b;
      by_d += forward.d == nullptr ? T(0) : forward.d[i] * local_a;
    }
    out.dbias[channel] = sum_a;
    out.dweight[channel] = sum_b + by_d;
  }

  template <class Lanes>
  BNLAB_BOTH T summed(int64_t group, int64_t column, const Lanes& team) const {
    const T* sums = group_sums + group * summands * 2 * channels + column;
    T sum = team.lane() < summands ? sums[team.lane() * 2 * channels] : T(0);
    for (int64_t i = team.lane() + team.lanes(); i < summands; i += team.lanes())
      sum += sums[i * 2 * channels];
    return team.sum(sum);
  }
};

// What a tower's statistic becomes by n new ones.
template <class T>
BNLAB_BOTH T remembered(T before, T decay, double sum, int n, double step_weight) {
  return before * decay + static_cast<T>(quotient(sum, static_cast<double>(n)) * step_weight);
}

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
  double ddof = 1;

  // What a row is remembered by: its mean, and its variance.
  struct Pair {
    T mean, var;
  };
  BNLAB_BOTH Pair of_moments(double count, double mean, double m2) const {
    return {static_cast<T>(mean), static_cast<T>(quotient(m2, at_least_one(count - ddof)))};
  }

  BNLAB_BOTH void operator()(int64_t c) const {
    with(c, [&](int64_t i) { return of_moments(moments.count(i), moments.mean(i, c), moments.m2(i, c)); });
  }

  // pair_of(i): of_moments, or what it gave.
  template <class PairOf>
  BNLAB_BOTH void with(int64_t c, const PairOf& pair_of) const {
    constexpr int kAtOnce = 2;  // rows that are loaded before the first is used
    const int64_t channels = moments.channels;
    double mean = 0, var = 0, tower_mean = 0, tower_var = 0;
    int taken = 0, lost = 0, finite = 0;  // rows that take part; those that are not finite; of a tower
    int64_t tower = -1;
    T* own = nullptr;  // of the tower
    const auto end_tower = [&] {
      if (own == nullptr || finite == 0) return;
      own[c] = remembered(own[c], decay, tower_mean, finite, step_weight);
      own[channels + c] = remembered(own[channels + c], decay, tower_var, finite, step_weight);
    };
    for (int64_t first = 0; first < rows; first += kAtOnce) {
      Pair pairs[kAtOnce];
      for (int k = 0; k < kAtOnce; ++k) pairs[k] = pair_of(first + k < rows ? first + k : first);
      for (int k = 0; k < kAtOnce; ++k) {
        const int64_t i = first + k;
        if (i >= rows) break;
        if (tower_running != nullptr && tower_of(i) != tower) {
          end_tower();
          tower = tower_of(i);
          own = tower_running + tower * 2 * channels;
          tower_mean = tower_var = 0;
          finite = 0;
        }
        if (weights[rows + i] == 0) continue;
        ++taken;
        T m = pairs[k].mean, v = pairs[k].var;
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
    }
    end_tower();
    if (lost > 0) count(tower_running == nullptr ? 1 : lost);
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
    if (nonfinite_count == nullptr) return;
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
  MergeMoments<T> merge{};          // of PooledLayout::towers and passes
  MomentsOfSums moments_of_sums{};  // of PooledLayout::group_sums
  Forward<T> forward{};
  UpdateRunning<T> update{};

  BNLAB_BOTH bool merges() const { return layout == PooledLayout::towers || layout == PooledLayout::passes; }
  BNLAB_BOTH int64_t rows() const { return merges() ? merge.rows() : 0; }

  template <class Lanes = Alone>
  BNLAB_BOTH void operator()(int64_t c, const Lanes& team = {}) const {
    if (merges())
      merge(c, team);
    else if (layout == PooledLayout::group_sums && team.lane() == 0)
      moments_of_sums(c);
    team.wait();
    for (int64_t s = team.lane(); s < forward.sets; s += team.lanes()) forward.of_set(s, c);
    team.wait();
    if (updates && team.lane() == 0) update(c);
  }
};

}  // namespace bnlab::kernels::channel
