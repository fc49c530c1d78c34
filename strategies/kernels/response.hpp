// The steps of filter response normalisation between the sweeps (Singh and Krishnan 2020), as those of
// kernels.hpp: each channel of a sample is divided by its root mean square, about zero, and the
// activation behind it is max(y, tau). Each is one launch on CUDA, so that a site takes three kernels forward
// and three backward, and four and four with tau.
//
// With n, m and M2 of one channel of one sample: s = 1 / sqrt(M2 / n + m^2 + eps),
//   forward    scale = gamma s, shift = beta - tau, about the mean 0; tau is added behind ReLU
//   backward   a = gamma s, b = -a s^2 B / n, c = 0; dgamma = sum s B, dbeta = sum A, dtau = sum dy - sum A
// with A = sum g and B = sum g x of the sample, and g = dy where y > tau and 0 elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

// rows: [samples, 1 + 2C], as kernels::moments returns them. threshold: tau [C], or undefined: 0.
Coefficients response_forward(const at::Tensor& rows, double eps, const at::Tensor& weight,
                              const at::Tensor& bias, const at::Tensor& threshold, at::ScalarType statistics);

// sums: [samples, 2, C], A and B of each channel. total [C]: the sum of dy, or undefined without tau; then
// dthreshold [C] receives its gradient.
BackwardCoefficients response_backward(const Coefficients& forward, const at::Tensor& sums,
                                       const at::Tensor& weight, const at::Tensor& total,
                                       const at::Tensor& dthreshold);

namespace channel {

// Item i is channel i % C of sample i / C.
template <class T>
struct ResponseForward {
  Rows moments{};  // a row for every sample
  double eps = 0;
  const T *weight = nullptr, *bias = nullptr, *threshold = nullptr;  // [C]; null: 1, 0 and 0
  CoefficientsOf<T*> out{};                                          // each [samples, C]; no r and d

  BNLAB_BOTH void operator()(int64_t i) const {
    const int64_t c = i % moments.channels, sample = i / moments.channels;
    const double n = at_least_one(moments.count(sample)), m = moments.mean(sample, c);
    const T s = static_cast<T>(1.0 / sqrt(moments.m2(sample, c) / n + m * m + eps));
    out.count[i] = static_cast<T>(n);
    out.mean[i] = T(0);
    out.invstd[i] = s;
    out.scale[i] = weight == nullptr ? s : s * weight[c];
    out.shift[i] = (bias == nullptr ? T(0) : bias[c]) - (threshold == nullptr ? T(0) : threshold[c]);
  }
};

// The first samples * C items are numbered as above; each of the others sums what a channel's parameters get.
template <class T>
struct ResponseBackward {
  int64_t samples = 0, channels = 0;
  const T* sums = nullptr;             // [samples, 2, C]
  CoefficientsOf<const T*> forward{};  // count and invstd [samples, C]
  const T *weight = nullptr, *total = nullptr;
  BackwardCoefficientsOf<T*> out{};  // all but the mean
  T* dthreshold = nullptr;

  BNLAB_BOTH void operator()(int64_t item) const {
    item < samples* channels ? of_sample(item) : of_parameters(item - samples * channels);
  }

  BNLAB_BOTH void of_sample(int64_t i) const {
    const int64_t c = i % channels, sample = i / channels;
    const double s = static_cast<double>(forward.invstd[i]);
    const double a = weight == nullptr ? s : s * static_cast<double>(weight[c]);
    const double b = static_cast<double>(sums[(2 * sample + 1) * channels + c]);
    out.a[i] = static_cast<T>(a);
    out.b[i] = static_cast<T>(-a * (s * s) * b / static_cast<double>(forward.count[i]));
    out.c[i] = T(0);
  }

  BNLAB_BOTH void of_parameters(int64_t c) const {
    double sum_a = 0, sum_b = 0;
    for (int64_t n = 0; n < samples; ++n) {
      sum_a += static_cast<double>(sums[2 * n * channels + c]);
      sum_b += static_cast<double>(sums[(2 * n + 1) * channels + c]) *
               static_cast<double>(forward.invstd[n * channels + c]);
    }
    out.dbias[c] = static_cast<T>(sum_a);
    out.dweight[c] = static_cast<T>(sum_b);
    if (dthreshold != nullptr) dthreshold[c] = static_cast<T>(static_cast<double>(total[c]) - sum_a);
  }
};

}  // namespace channel
}  // namespace bnlab::kernels
