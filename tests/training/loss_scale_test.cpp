// The loss scale of float16: gradients are divided by it, steps without finite ones change nothing and shrink
// it, and a run in float16 comes out as one in float32 does.
#include "harness/training/loss_scale.hpp"

#include <cmath>

#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

at::Tensor with_gradient(double value) {
  const at::Tensor weight = at::ones({3}, at::kFloat).requires_grad_();
  weight.mutable_grad() = at::full({3}, value, at::kFloat);
  return weight;
}

double scale_of(const LossScale& scale) {
  return scale.summary().at("scale").get<double>();
}

TEST(LossScale, DividesGradientsAndGrowsAfterItsInterval) {
  LossScale scale({.start = 8, .growth = 4, .backoff = 0.5, .interval = 2}, at::kCPU);
  EXPECT_EQ(scale.scaled(at::full({}, 3.0)).item<double>(), 24);
  EXPECT_EQ(scale.unscaled(at::full({}, 24.0)).item<double>(), 3);
  const at::Tensor weight = with_gradient(16);
  EXPECT_TRUE(scale.unscale({weight}));
  EXPECT_EQ(weight.grad().max().item<double>(), 2);
  EXPECT_EQ(scale_of(scale), 8);
  EXPECT_TRUE(scale.unscale({with_gradient(16)}));
  EXPECT_EQ(scale_of(scale), 32);
}

TEST(LossScale, AGradientThatIsNotFiniteShrinksItAndIsCounted) {
  LossScale scale({.start = 8, .growth = 2, .backoff = 0.25, .interval = 2}, at::kCPU);
  EXPECT_TRUE(scale.unscale({with_gradient(1)}));
  EXPECT_FALSE(scale.unscale({with_gradient(1), with_gradient(INFINITY)}));
  EXPECT_FALSE(scale.unscale({with_gradient(NAN)}));
  EXPECT_EQ(scale_of(scale), 0.5);
  EXPECT_TRUE(scale.unscale({with_gradient(1)}));  // counted from the skipped step on
  EXPECT_EQ(scale_of(scale), 0.5);
  EXPECT_EQ(scale.summary().at("skipped_steps"), 2);
}

class Float16 : public ::testing::Test {
 protected:
  TrainingRuns runs_;
};

TEST_F(Float16, TrainsAsFloat32DoesToItsRounding) {
  for (const char* strategy : {"per_tower", "sync", "group_norm"}) {
    SCOPED_TRACE(strategy);
    const auto trained = [&](const char* precision) {
      return runs_.run(
          TrainingRuns::spec({{"strategy", strategy}, {"precision", precision}, {"log_every", 1}}), 2);
    };
    const TrainedRun half = trained("float16"), single = trained("float32");
    ASSERT_EQ(half.losses.size(), single.losses.size());
    for (size_t i = 0; i < half.losses.size(); ++i) {
      EXPECT_NEAR(half.losses[i], single.losses[i], 0.02 * single.losses[i]);
      EXPECT_NE(half.losses[i], single.losses[i]);
    }
    EXPECT_EQ(half.result.at("loss_scaling").at("skipped_steps"), 0);
    EXPECT_EQ(half.result.at("loss_scaling").at("scale"), 65536);
  }
}

// A scale under which everything overflows: no weight changes until it is small enough.
TEST_F(Float16, StepsWithoutFiniteGradientsAreSkippedAndRecorded) {
  const auto trained = [&](int64_t steps, double backoff) {
    return runs_.run(
        TrainingRuns::spec({{"precision", "float16"},
                            {"steps", steps},
                            {"optimizer", {{"name", "sgd"}, {"lr", 0.1}, {"schedule", "constant"}}},
                            {"loss_scaling", {{"start", 1e25}, {"backoff", backoff}}}}),
        2);
  };
  const TrainedRun once = trained(1, 0.5), twice = trained(2, 0.5), then = trained(2, 1e-20);
  EXPECT_EQ(once.result.at("loss_scaling").at("skipped_steps"), 1);
  EXPECT_EQ(twice.result.at("loss_scaling").at("skipped_steps"), 2);
  EXPECT_EQ(then.result.at("loss_scaling").at("skipped_steps"), 1);
  expect_equal(parameters_of(once), parameters_of(twice));
  int64_t changed = 0;
  for (const auto& [name, tensor] : parameters_of(then))
    changed += tensor.equal(parameters_of(once).at(name)) ? 0 : 1;
  EXPECT_GT(changed, 5);
}

}  // namespace
}  // namespace bnlab
