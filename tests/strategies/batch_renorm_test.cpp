// batch_renorm: its two ends, and the schedule of its limits.
#include <gtest/gtest.h>
#include <torch/types.h>

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

}  // namespace
}  // namespace bnlab
