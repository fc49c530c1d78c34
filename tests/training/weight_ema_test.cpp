#include "harness/training/weight_ema.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace bnlab {
namespace {

TEST(WeightEma, ForgetsTheFirstStepsSoon) {
  const WeightEma ema(0.5, {});
  EXPECT_DOUBLE_EQ(ema.decay_at(0), 0.1);         // 1 / 10
  EXPECT_DOUBLE_EQ(ema.decay_at(2), 3.0 / 12.0);  // (1 + 2) / (10 + 2)
  EXPECT_DOUBLE_EQ(ema.decay_at(8), 0.5);         // 9 / 18
  EXPECT_DOUBLE_EQ(ema.decay_at(1000), 0.5);
}

TEST(WeightEma, FollowsItsFormulaAndSwapsForthAndBack) {
  at::Tensor weight = at::full({2, 3}, 1.0, at::kDouble).requires_grad_();
  WeightEma ema(0.9, {weight});
  const at::NoGradGuard no_grad;
  weight.fill_(2);
  ema.update(0);  // 0.1 * 1 + 0.9 * 2 = 1.9
  weight.fill_(3);
  ema.update(1);  // d = 2/11: 1.9 d + 3 (1 - d) = 2.8
  ema.swap();
  EXPECT_NEAR(weight.max().item<double>(), 2.8, 1e-15);
  EXPECT_NEAR(weight.min().item<double>(), 2.8, 1e-15);
  ema.swap();
  EXPECT_EQ(weight.max().item<double>(), 3);
}

TEST(WeightEma, StartsFromTheInitialWeightsInTheirPrecision) {
  at::Tensor weight = at::full({4}, 0.5f, at::kFloat);
  WeightEma ema(0.9, {weight});
  ema.swap();
  EXPECT_EQ(weight.scalar_type(), at::kFloat);
  EXPECT_EQ(weight.min().item<double>(), 0.5);
}

}  // namespace
}  // namespace bnlab
