// The small steps between the sweeps where each sample is normalised by itself, over groups of channels: what finish.hpp is
// for batches. Each is one launch on CUDA, so that such a site takes three kernels forward and three backward.
//
// There is a set for every sample; its channels are cut into `groups` equal parts, over which its moments are merged.
#pragma once

#include "strategies/kernels/finish.hpp"

namespace bnlab::kernels {

// rows: float64 [samples, 1 + 2C], as kernels::moments returns them. The mean m, s = 1 / sqrt(v + eps) and the count N (positions
// times channels, at least 1) are those of the group, in each of its channels: scale = gamma s, shift = beta.
Coefficients sample_forward(const at::Tensor& rows, int64_t groups, double eps, const at::Tensor& weight,
                            const at::Tensor& bias, at::ScalarType statistics);

// sums: [samples, 2, C], A = sum g and B = sum g (x - m) of each channel. With A' and B' the sums over a group's channels of
// gamma A and gamma B: a = gamma s, c = -s A'/N, b = -s^3 B'/N; dweight = sum s B, dbias = sum A over the samples.
BackwardCoefficients sample_backward(const Coefficients& forward, const at::Tensor& sums, int64_t groups,
                                     const at::Tensor& weight);

}  // namespace bnlab::kernels
