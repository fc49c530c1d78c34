// What running statistics remember does not depend on which towers share a rank, or on when the ranks merge,
// even after a value that is not finite.
#include "strategies/engine/running_statistics.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>
#include <limits>

#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Eight training steps on four towers; in step 2 a value of tower 1 is infinite in channel 3, in steps 4 and
// 5 one of tower 0. merged_every: steps between merges; the last one merges always.
LayerCase disturbed(const Json& strategy, size_t merged_every) {
  LayerCase c = make_case(strategy, {.towers = {6, 6, 6, 6}, .modes = std::vector<Mode>(8)});
  for (size_t s = 0; s < c.steps.size(); ++s) {
    c.steps[s].gradients.clear();
    c.steps[s].merges = (s + 1) % merged_every == 0 || s + 1 == c.steps.size();
  }
  c.steps[2].inputs[1].select(1, 3).select(0, 0).fill_(kInf);
  for (const size_t s : {4, 5}) c.steps[s].inputs[0].select(1, 3).select(0, 2).fill_(kInf);
  return c;
}

const std::vector<Json> kStrategies{"per_tower",
                                    {{"name", "per_tower"}, {"saved_tower", 1}},
                                    "last_tower",
                                    "averaged",
                                    {{"name", "averaged"}, {"merge", "pooled"}},
                                    {{"name", "averaged"}, {"momentum", nullptr}},
                                    "every_tower",
                                    {{"name", "every_tower"}, {"running", "zero_debias"}},
                                    {{"name", "every_tower"}, {"momentum", 1}},
                                    {{"name", "every_tower"}, {"momentum", nullptr}},
                                    "ghost",
                                    {{"name", "norm_batch"}, {"samples", 2}},
                                    "shuffle",
                                    "batch_renorm",
                                    "sync"};

TEST(RunningStatistics, DoNotDependOnThePlacementOrTheMergesAfterANonFiniteValue) {
  for (const Json& strategy : kStrategies) {
    const LayerStepAnswer expected = apply_layer(disturbed(strategy, 8), 1).steps.back();
    for (const int ranks : {1, 2, 4}) {
      for (const size_t merged_every : {1, 3, 8}) {
        SCOPED_TRACE(strategy.dump() + ", " + std::to_string(ranks) + " ranks, merged every " +
                     std::to_string(merged_every) + " steps");
        const LayerStepAnswer answer = apply_layer(disturbed(strategy, merged_every), ranks).steps.back();
        EXPECT_LT(relative_error(answer.running_mean, expected.running_mean), kExact);
        EXPECT_LT(relative_error(answer.running_var, expected.running_var), kExact);
      }
    }
  }
}

// Of one tower's pair the channel stays to the bit while its moments are not finite.
TEST(RunningStatistics, OfOneTowerStayInStepsThatAreNotFinite) {
  LayerCase c = disturbed("per_tower", 1);
  const LayerAnswer answer = apply_layer(c, 1);
  const auto channel = [&](size_t step) { return answer.steps[step].running_var[3].item<double>(); };
  EXPECT_NE(channel(2), channel(1));
  EXPECT_EQ(channel(4), channel(3));
  EXPECT_EQ(channel(5), channel(3));
  EXPECT_NE(channel(6), channel(5));
}

// With equal towers the pair is a sum of shares, one for each tower: (1 - a) share + a/T (m, v), or the share
// as it was.
TEST(RunningStatistics, ATowerThatIsNotFiniteKeepsItsShare) {
  const LayerCase c = disturbed("averaged", 8);
  double expected = 0;
  for (size_t t = 0; t < 4; ++t) {
    double share = c.running_mean[3].item<double>() / 4;
    for (const LayerStep& step : c.steps) {
      const double mean = rows(step.inputs[t]).mean(1)[3].item<double>();
      share = std::isfinite(mean) ? 0.9 * share + 0.1 / 4 * mean : share;
    }
    expected += share;
  }
  for (const int ranks : {1, 2, 4}) {
    const LayerAnswer answer = apply_layer(c, ranks);
    EXPECT_NEAR(answer.steps.back().running_mean[3].item<double>(), expected, 1e-12);
    EXPECT_EQ(answer.nonfinite_channels, 3);
  }
}

}  // namespace
}  // namespace bnlab
