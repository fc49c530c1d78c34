// batch_renorm: its two ends, and the schedule of its limits.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/embed/bnlab/batch_norm.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

at::Tensor standardised(const at::Tensor& x) {
  const at::Tensor mean = rows(x).mean(1), var = rows(x).var(1, /*unbiased=*/false);
  return (x - by_channel(mean, x)) / by_channel((var + 1e-5).sqrt(), x);
}

TEST(BatchRenorm, WithoutRoomIsBatchNormAndWithoutLimitsTheRunningStatistics) {
  const auto renorm = [](double r_max, double d_max) {
    return Json{{"name", "batch_renorm"},
                {"r_max", r_max},
                {"d_max", d_max},
                {"schedule", nullptr},
                {"scope", "pooled"}};
  };
  const LayerCase none = make_case(renorm(1, 0), {{3, 2}, {4, 2, 3}});
  EXPECT_EQ(compare(none, plain_batch_norm(none), joined(apply_layer(none))).failure, "");
  const LayerCase free = make_case(renorm(1e9, 1e9), {{3, 2}, {4, 2, 3}});
  LayerCase evaluation = free;
  evaluation.steps[0].mode = Mode::evaluate_saved;
  EXPECT_LT(relative_error(at::cat(apply_layer(free).steps[0].outputs),
                           at::cat(apply_layer(evaluation).steps[0].outputs)),
            kExact);
}

// Running statistics far from the batch, which hardly move, clip both corrections.
TEST(BatchRenorm, ItsLimitsRiseLinearlyBetweenTheirSteps) {
  const Json schedule{{"start_step", 1}, {"end_step", 3}};
  LayerCase c = make_case(
      {{"name", "batch_renorm"}, {"r_max", 3}, {"d_max", 5}, {"momentum", 1e-12}, {"schedule", schedule}},
      {{4, 3}, {4, 2, 3}, std::vector<Mode>(5)});
  c.running_mean.fill_(-100);
  c.running_var.fill_(1e-2);
  const LayerAnswer answer = apply_layer(c);
  const std::vector<std::pair<double, double>> limits{{1, 0}, {1, 0}, {2, 2.5}, {3, 5}, {3, 5}};
  for (size_t k = 0; k < limits.size(); ++k) {
    const at::Tensor x = c.steps[k].inputs[0];
    const at::Tensor y = (standardised(x) * limits[k].first + limits[k].second) * by_channel(c.weight, x) +
                         by_channel(c.bias, x);
    EXPECT_LT(relative_error(answer.steps[k].outputs[0], y), kExact) << "step " << k;
  }
}

// What a layer of another program says when it is trained; "" where it trains.
std::string refusal(const std::string& strategy, int64_t steps, bool training = true) {
  BatchNorm layer(BatchNormOptions(4).strategy(strategy).towers_per_rank(2).total_steps(steps));
  layer->to(at::kDouble);
  layer->train(training);
  try {
    layer->forward(at::randn({6, 4, 2, 2}, at::kDouble));
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

TEST(BatchRenorm, ItsDefaultScheduleNeedsTheLengthOfTheRunOnceItTrains) {
  const std::string said = refusal("batch_renorm", 0);
  EXPECT_NE(said.find("whose length is not known here; give start_step and end_step, or null"),
            std::string::npos)
      << said;
  EXPECT_NE(refusal(R"({"name": "frozen", "base": "batch_renorm", "from_step": 5})", 0), "");
  EXPECT_EQ(refusal("batch_renorm", 0, /*training=*/false), "");
  EXPECT_EQ(refusal("batch_renorm", 1000), "");
  EXPECT_EQ(refusal(R"({"name": "batch_renorm", "schedule": null})", 0), "");
  EXPECT_EQ(refusal(R"({"name": "batch_renorm", "schedule": {"end_step": 10}})", 0), "");
}

// In no run at all, `bnlab layer`, a schedule that is not given is none.
TEST(BatchRenorm, HasNoScheduleByDefaultInALayerByItself) {
  const CaseShape shape{{3, 2}, {4, 2, 3}};
  const LayerCase by_default = make_case("batch_renorm", shape);
  const LayerCase none = make_case({{"name", "batch_renorm"}, {"schedule", nullptr}}, shape);
  EXPECT_EQ(compare(none, apply_layer(none), apply_layer(by_default)).failure, "");
}

}  // namespace
}  // namespace bnlab
