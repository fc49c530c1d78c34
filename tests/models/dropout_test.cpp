// Dropout: what its masks depend on, and what they do not.
#include <gtest/gtest.h>

#include "harness/dropout.hpp"

namespace bnlab {
namespace {

const Dropout kElements{"head.3", 0.25};

// Two towers with three samples each, of which a rank has one tower or both.
Pass pass_of(int ranks, int rank, int64_t step = 7, Mode mode = Mode::train) {
  Pass pass{Towers({3, 3}, ranks, rank), 1, {step, 10}, mode};
  pass.seed = 5;
  return pass;
}

at::Tensor ones(int64_t rows) {
  return at::ones({rows, 8, 5, 6});
}

TEST(Dropout, DropsItsShareAndKeepsTheMean) {
  const at::Tensor y = dropout(at::ones({6, 32, 20, 20}), kElements, pass_of(1, 0));
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.25, 0.01);
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.02);
}

TEST(Dropout, DropsWholeChannels) {
  const at::Tensor y = dropout(at::ones({6, 64, 5, 5}), {"head.3", 0.5, true}, pass_of(1, 0));
  EXPECT_TRUE(at::equal(y, y.slice(2, 0, 1).slice(3, 0, 1).expand_as(y)));
  EXPECT_NEAR(y.eq(0).to(at::kDouble).mean().item<double>(), 0.5, 0.1);
}

TEST(Dropout, DependsOnSeedStepRowAndPlaceInTheNetwork) {
  const at::Tensor y = dropout(ones(6), kElements, pass_of(1, 0));
  EXPECT_TRUE(at::equal(y, dropout(ones(6), kElements, pass_of(1, 0))));
  EXPECT_FALSE(at::equal(y[0], y[1]));
  EXPECT_FALSE(at::equal(y, dropout(ones(6), kElements, pass_of(1, 0, 8))));
  EXPECT_FALSE(at::equal(y, dropout(ones(6), {"head.4", 0.25}, pass_of(1, 0))));
  EXPECT_FALSE(at::equal(y, dropout(ones(6), kElements, pass_of(1, 0, 7, Mode::calibrate))));
  Pass other = pass_of(1, 0);
  other.seed = 6;
  EXPECT_FALSE(at::equal(y, dropout(ones(6), kElements, other)));
}

TEST(Dropout, DoesNotDependOnThePlacement) {
  const at::Tensor one = dropout(ones(6), kElements, pass_of(1, 0));
  EXPECT_TRUE(at::equal(one.narrow(0, 3, 3), dropout(ones(3), kElements, pass_of(2, 1))));
}

TEST(Dropout, GoesWithARowThatAStrategyHasMoved) {
  const at::Tensor in_order = dropout(ones(6), kElements, pass_of(1, 0));
  Pass moved = pass_of(1, 0);
  moved.rows = {4, 0, 5, 1, 3, 2};
  EXPECT_TRUE(at::equal(in_order[4], dropout(ones(6), kElements, moved)[0]));
}

TEST(Dropout, LeavesEvaluationAlone) {
  for (const Mode mode : {Mode::evaluate_saved, Mode::evaluate_batch}) {
    EXPECT_TRUE(at::equal(ones(6), dropout(ones(6), kElements, pass_of(1, 0, 7, mode))));
  }
}

// 1/0.9 is 1.109 in bfloat16: twice nothing may be rounded to that.
TEST(Dropout, ScalesExactlyInLowPrecision) {
  const at::Tensor y =
      dropout(at::full({6, 64, 20, 20}, 9).to(at::kBFloat16), {"head.3", 0.1}, pass_of(1, 0));
  EXPECT_EQ(y.max().item<float>(), 10);
}

TEST(Dropout, TakesRowsInAnyPrecision) {
  for (const auto type : {at::kDouble, at::kBFloat16}) {
    EXPECT_EQ(dropout(ones(6).to(type), kElements, pass_of(1, 0)).scalar_type(), type);
  }
}

}  // namespace
}  // namespace bnlab
