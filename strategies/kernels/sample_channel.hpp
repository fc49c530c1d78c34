// The arithmetic of kernels.hpp for the norms within samples, as channel.hpp has it for the others. An item
// is a group of channels of a sample, numbered by sample, then group. On CUDA it has a team of threads, of
// which each takes some of the channels.
#pragma once

#include "strategies/kernels/channel.hpp"

namespace bnlab::kernels::channel {

// Forward coefficients of norms within samples; sums over channels are taken in float64.
template <class T>
struct SampleForward {
  Rows moments{};  // a row for every sample
  int64_t samples = 0, groups = 1;
  double eps = 0;
  const T *weight = nullptr, *bias = nullptr;  // [C]; null: 1 and 0
  CoefficientsOf<T*> out{};                    // each [samples, C]; no r and d

  BNLAB_BOTH int64_t group_size() const { return moments.channels / groups; }
  int64_t items(int64_t) const { return samples * groups; }

  template <class Team = Alone>
  BNLAB_BOTH void operator()(int64_t item, const Team& team = {}) const {
    const int64_t sample = item / groups;
    const int64_t size = group_size(), first = item % groups * size, end = first + size;
    const double positions = moments.count(sample), n = at_least_one(positions * static_cast<double>(size));
    double sum = 0, m2 = 0;
    for (int64_t c = first + team.lane(); c < end; c += team.lanes()) sum += moments.mean(sample, c);
    const double group_mean = team.sum(sum) / static_cast<double>(size);
    for (int64_t c = first + team.lane(); c < end; c += team.lanes()) {
      const double d = moments.mean(sample, c) - group_mean;
      m2 += moments.m2(sample, c) + positions * (d * d);
    }
    const T s = static_cast<T>(1.0 / sqrt(team.sum(m2) / n + eps));
    for (int64_t c = first + team.lane(); c < end; c += team.lanes()) {
      const int64_t i = sample * moments.channels + c;
      out.count[i] = static_cast<T>(n);
      out.mean[i] = static_cast<T>(group_mean);
      out.invstd[i] = s;
      out.scale[i] = weight == nullptr ? s : s * weight[c];
      out.shift[i] = bias == nullptr ? T(0) : bias[c];
    }
  }
};

// Behind the groups' items, each lane of the others sums dweight and dbias of a channel.
template <class T>
struct SampleBackward {
  int64_t samples = 0, channels = 0, groups = 1;
  const T* sums = nullptr;             // [samples, 2, C]
  CoefficientsOf<const T*> forward{};  // count and invstd [samples, C]
  const T* weight = nullptr;           // [C]; null: 1
  BackwardCoefficientsOf<T*> out{};    // all but the mean

  BNLAB_BOTH int64_t group_size() const { return channels / groups; }
  int64_t items(int64_t lanes) const { return samples * groups + (channels + lanes - 1) / lanes; }

  template <class Team = Alone>
  BNLAB_BOTH void operator()(int64_t item, const Team& team = {}) const {
    const int64_t others = item - samples * groups, sample = others < 0 ? item / groups : 0;
    const int64_t size = group_size(), first = item % groups * size, end = others < 0 ? first + size : first;
    const T *sum_a = sums + 2 * sample * channels, *invstd = forward.invstd;
    double all_a = 0, all_b = 0;
    for (int64_t k = first + team.lane(); k < end; k += team.lanes()) {
      const double gamma = weight == nullptr ? 1 : static_cast<double>(weight[k]);
      all_a += gamma * static_cast<double>(sum_a[k]);
      all_b += gamma * static_cast<double>(sum_a[channels + k]);
    }
    all_a = team.sum(all_a);  // by all threads of a block, those without channels, too
    all_b = team.sum(all_b);
    if (others >= 0) {
      of_parameters(others * team.lanes() + team.lane());
      return;
    }
    const int64_t start = sample * channels;
    const double s = static_cast<double>(invstd[start + first]);
    const double per_element = -s / static_cast<double>(forward.count[start + first]);
    for (int64_t k = first + team.lane(); k < end; k += team.lanes()) {
      out.a[start + k] = weight == nullptr ? invstd[start + k] : invstd[start + k] * weight[k];
      out.b[start + k] = static_cast<T>(per_element * all_b * (s * s));
      out.c[start + k] = static_cast<T>(per_element * all_a);
    }
  }

  BNLAB_BOTH void of_parameters(int64_t channel) const {
    if (channel >= channels) return;
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
