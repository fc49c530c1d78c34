// The arithmetic of sample_finish.hpp for one item, on raw pointers, for the CPU and for CUDA. T is the statistics'
// precision; sums over channels are taken in float64. A group may have several lanes: each takes the same sums, and writes
// its share of the channels.
#pragma once

#include "strategies/kernels/finish_channel.hpp"

namespace bnlab::kernels {

// Items are numbered by sample, then group, then lane.
template <class T>
struct SampleForward {
  Rows in;  // a row per sample
  int64_t groups, lanes;
  double eps;
  const T *weight, *bias;                    // null: 1 and 0
  T *mean, *invstd, *scale, *shift, *count;  // [samples, C]

  BNLAB_BOTH void operator()(int64_t item) const {
    const int64_t lane = item % lanes, group = item / lanes % groups, sample = item / lanes / groups;
    const int64_t size = in.channels / groups, first = group * size, end = first + size;
    const double positions = in.count(sample), n = at_least_one(positions * static_cast<double>(size));
    double sum = 0, m2 = 0;
    for (int64_t c = first; c < end; ++c) {
      sum += in.mean(sample, c);
    }
    const double group_mean = sum / static_cast<double>(size);
    for (int64_t c = first; c < end; ++c) {
      const double d = in.mean(sample, c) - group_mean;
      m2 += in.m2(sample, c) + positions * (d * d);
    }
    const T s = static_cast<T>(1.0 / sqrt(m2 / n + eps));
    for (int64_t c = first + lane; c < end; c += lanes) {
      const int64_t i = sample * in.channels + c;
      count[i] = static_cast<T>(n);
      mean[i] = static_cast<T>(group_mean);
      invstd[i] = s;
      scale[i] = weight == nullptr ? s : s * weight[c];
      shift[i] = bias == nullptr ? T(0) : bias[c];
    }
  }
};

// The first samples * groups * lanes items are as above; each of the others sums dweight and dbias of one channel.
template <class T>
struct SampleBackward {
  int64_t samples, channels, groups, lanes;
  const T* sums;            // [samples, 2, C]
  const T *count, *invstd;  // [samples, C]
  const T* weight;          // null: 1
  T *a, *b, *c;             // [samples, C]
  T *dweight, *dbias;       // [C]

  BNLAB_BOTH void operator()(int64_t item) const {
    const int64_t all = samples * groups * lanes;
    item < all ? of_group(item / lanes / groups, item / lanes % groups, item % lanes)
               : of_parameters(item - all);
  }

  BNLAB_BOTH void of_group(int64_t sample, int64_t group, int64_t lane) const {
    const int64_t size = channels / groups, first = group * size, end = first + size;
    const T* sum_a = sums + 2 * sample * channels;
    double all_a = 0, all_b = 0;
    for (int64_t k = first; k < end; ++k) {
      const double gamma = weight == nullptr ? 1 : static_cast<double>(weight[k]);
      all_a += gamma * static_cast<double>(sum_a[k]);
      all_b += gamma * static_cast<double>(sum_a[channels + k]);
    }
    const int64_t start = sample * channels;
    const double s = static_cast<double>(invstd[start + first]);
    const double per_element = -s / static_cast<double>(count[start + first]);
    for (int64_t k = first + lane; k < end; k += lanes) {
      a[start + k] = weight == nullptr ? invstd[start + k] : invstd[start + k] * weight[k];
      b[start + k] = static_cast<T>(per_element * all_b * (s * s));
      c[start + k] = static_cast<T>(per_element * all_a);
    }
  }

  BNLAB_BOTH void of_parameters(int64_t channel) const {
    double sum_a = 0, sum_b = 0;
    for (int64_t n = 0; n < samples; ++n) {
      sum_a += static_cast<double>(sums[2 * n * channels + channel]);
      sum_b += static_cast<double>(sums[(2 * n + 1) * channels + channel]) *
               static_cast<double>(invstd[n * channels + channel]);
    }
    dbias[channel] = static_cast<T>(sum_a);
    dweight[channel] = static_cast<T>(sum_b);
  }
};

}  // namespace bnlab::kernels
