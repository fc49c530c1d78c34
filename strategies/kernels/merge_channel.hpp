// How moments of several towers become one, for one channel, on raw pointers, for the CPU and for CUDA. T is the
// statistics' precision.
#pragma once

#include "strategies/kernels/rows.hpp"

namespace bnlab::kernels {

template <class T>
struct MergeMoments {
  Rows in;
  double* out;  // [groups, 1 + 2C]
  int64_t groups, group;
  bool spread, e_x2;

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t k = 0; k < groups; ++k) {
      double* row = out + k * (1 + 2 * in.channels);
      double count = 0;
      for (int64_t i = k * group; i < (k + 1) * group; ++i) {
        count += in.count(i);
      }
      row[0] = count;  // every channel writes the same, and then need not wait for another's
      e_x2 ? by_squares(k, c, count, row) : by_deviations(k, c, count, row);
    }
  }

  BNLAB_BOTH void by_deviations(int64_t k, int64_t c, double count, double* row) const {
    double sum = 0, within = 0, between = 0;
    for (int64_t i = k * group; i < (k + 1) * group; ++i) {
      sum += in.count(i) * in.mean(i, c);
      within += in.m2(i, c);
    }
    const double mean = sum / at_least_one(count);
    for (int64_t i = k * group; spread && i < (k + 1) * group; ++i) {
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

// What an all_reduce adds up: (n, n m, M + n m^2), or (n, n m, M) where the variance is averaged, without `squares`; for
// every group, of the towers that this rank holds of it: tower t is in group sharing.row(t).
struct SumMoments {
  Rows in;      // of this rank's towers
  double* out;  // [groups, 1 + 2C]
  int64_t groups, towers;
  Sharing sharing;
  bool squares;

  BNLAB_BOTH void operator()(int64_t c) const {
    for (int64_t k = 0; k < groups; ++k) {
      double count = 0, sum = 0, second = 0;
      for (int64_t t = 0; t < towers; ++t) {
        if (sharing.row(t) == k) {
          const double n = in.count(t), m = in.mean(t, c);
          count += n;
          sum += n * m;
          second += squares ? in.m2(t, c) + n * (m * m) : in.m2(t, c);
        }
      }
      double* row = out + k * (1 + 2 * in.channels);
      row[0] = count;  // every channel writes the same
      row[1 + c] = sum;
      row[1 + in.channels + c] = second;
    }
  }
};

// Values of towers summed up for each group, for one column of what each holds.
template <class T>
struct SumTowers {
  const T* in;  // [towers, columns]
  T* out;       // [groups, columns]
  int64_t groups, towers, columns;
  Sharing sharing;

  BNLAB_BOTH void operator()(int64_t column) const {
    for (int64_t k = 0; k < groups; ++k) {
      T sum = 0;
      for (int64_t t = 0; t < towers; ++t) {
        if (sharing.row(t) == k) {
          sum += in[t * columns + column];
        }
      }
      out[k * columns + column] = sum;
    }
  }
};

// The moments that sums of SumMoments over all ranks stand for.
struct MomentsOfSums {
  Rows in;
  double* out;  // [groups, 1 + 2C]
  int64_t groups;
  bool squares;

  BNLAB_BOTH void operator()(int64_t c) const {
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

}  // namespace bnlab::kernels
