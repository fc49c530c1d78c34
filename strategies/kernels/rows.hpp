// What the functions of finish_channel.hpp, merge_channel.hpp and sample_group.hpp have in common, on the CPU and on CUDA:
// packed rows of moments, and which row a set takes.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BNLAB_BOTH __host__ __device__
#else
#define BNLAB_BOTH
#endif

namespace bnlab::kernels {

// `stride` apart, each (n, mean[0..C), M2[0..C)).
struct Rows {
  const double* data;
  int64_t stride, channels;

  BNLAB_BOTH double count(int64_t row) const { return data[row * stride]; }
  BNLAB_BOTH double mean(int64_t row, int64_t c) const { return data[row * stride + 1 + c]; }
  BNLAB_BOTH double m2(int64_t row, int64_t c) const { return data[row * stride + 1 + channels + c]; }
};

// What an exchange gives: a row of every tower; of every group, merged; or of every group, sums still (SumMoments).
enum class Content { towers, groups, sums };

// Which row holds what a set takes: `size` consecutive sets share one. A kernel takes it as an argument, in place of a table
// that would have to be made on the device.
struct Sharing {
  unsigned first = 0;  // this rank's first set
  unsigned size = 1;

  BNLAB_BOTH int64_t row(int64_t set) const { return (first + static_cast<unsigned>(set)) / size; }
};

BNLAB_BOTH inline double at_least_one(double n) {
  return n < 1 ? 1 : n;
}

// NaN passes through, as it does not through fmin and fmax.
BNLAB_BOTH inline double clip(double value, double low, double high) {
  return value < low ? low : value > high ? high : value;
}

}  // namespace bnlab::kernels
