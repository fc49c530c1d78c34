// A site whose sets are normalised by their own moments alone: each sweep with the finish steps that follow it.
// The same as the functions of kernels.hpp and finish.hpp one after the other; on CUDA one launch each (in which a
// product may be rounded together with a sum), so that a site takes two kernels forward and two backward.
#pragma once

#include "strategies/kernels/finish.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

struct OwnForward {
  at::Tensor rows;  // [S, 1 + 2C]
  Coefficients coefficients;
};

// moments, then finish_forward of them, then update_pair with them where a pair is given.
OwnForward own_forward(const at::Tensor& x, const Offsets& offsets, double eps, bool mean_only,
                       const at::Tensor& weight, const at::Tensor& bias, const std::optional<Renorm>& renorm,
                       const std::optional<PairStep>& pair);

// backward_sums, then finish_backward of them; through_moments: the gradient passes through the set's moments.
BackwardCoefficients own_backward(const Incoming& incoming, const Coefficients& forward, bool through_moments,
                                  bool mean_only, const at::Tensor& weight);

}  // namespace bnlab::kernels
