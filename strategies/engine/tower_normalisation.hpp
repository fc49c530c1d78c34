// One forward and backward pass of a TowerNorm by its Rules: from moments to coefficients and back, with
// s = 1 / sqrt(v + eps) over the set (a tower, a group of towers, a virtual batch):
//   forward   y = gamma ((x - m) s r + d) + beta; r = 1 and d = 0 but for batch renormalisation
//   backward  dx = gamma r s (g - A/N - (x - m) s^2 B/N), A = sum g, B = sum g (x - m) over the set
#pragma once

#include <optional>

#include "strategies/engine/norm_function.hpp"
#include "strategies/engine/pooling.hpp"
#include "strategies/engine/tower_norm.hpp"

namespace bnlab {

class TowerNormalisation : public Normalisation {
 public:
  TowerNormalisation(TowerNorm& layer, const Rules& rules, const Pass& pass, Sets sets);

  ForwardCoefficients forward(const at::Tensor& x, const kernels::Offsets& offsets, const at::Tensor& weight,
                              const at::Tensor& bias) override;
  BackwardCoefficients backward(const Incoming& incoming, const at::Tensor& weight) override;

 private:
  // Sets mean_ and count_; returns the biased variance that normalises each set [S, C], float64.
  at::Tensor take_moments(const at::Tensor& x, const kernels::Offsets& offsets);
  void remember(const at::Tensor& own, const at::Tensor& pooled);
  at::Tensor own_towers(const at::Tensor& own) const;             // [G, 1 + 2C], where sets are smaller
  at::Tensor all_towers(const at::Tensor& own, Purpose purpose);  // [T, 1 + 2C]; at most one exchange

  TowerNorm& layer_;
  Rules rules_;
  Pass pass_;
  Sets sets_;
  bool training_;                // train, not calibrate or evaluate
  std::vector<int64_t> towers_;  // elements of every tower
  std::optional<Pool> pool_;     // where the moments that normalise are pooled
  at::Tensor all_towers_;        // [T, 1 + 2C], once gathered for a pair
  at::Tensor mean_, invstd_;     // [S, C], statistics' precision
  at::Tensor group_means_;       // [K, C], pooled
  at::Tensor gradient_mean_;     // where it differs from mean_
  at::Tensor count_;             // [S, 1] float64
  at::Tensor r_, d_;             // [S, C] of renormalisation
};

}  // namespace bnlab
