// Two towers, one channel, six values: every output, gradient and saved pair worked out by hand and checked
// by finite differences. x A = (1, 3, 8), B = (2, 9, 10); dy A = (1, -2, .5), B = (3, .25, -1); gamma 2,
// beta -1, eps 1e-5, momentum 0.1, running statistics 0 and 1.
#include <gtest/gtest.h>

#include "tests/strategies/layer_case.hpp"

namespace bnlab {
namespace {

at::Tensor column(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).view({-1, 1});
}

LayerCase example(const Json& strategy) {
  LayerCase c;
  c.strategy = strategy;
  c.inputs = {column({1, 3, 8}), column({2, 9, 10})};
  c.gradients = {column({1, -2, .5}), column({3, .25, -1})};
  c.weight = at::tensor({2.0}, at::kDouble);
  c.bias = at::tensor({-1.0}, at::kDouble);
  return c;
}

void expect_values(const at::Tensor& actual, const std::vector<double>& expected, double tolerance = 6e-7) {
  ASSERT_EQ(actual.numel(), static_cast<int64_t>(expected.size()));
  const at::Tensor flat = actual.reshape({-1}).contiguous();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(flat.const_data_ptr<double>()[i], expected[i], tolerance) << "value " << i;
  }
}

// The printed values have six decimals.
void expect_answer(const Json& strategy, const std::vector<double>& y, const std::vector<double>& dx,
                   double dgamma) {
  SCOPED_TRACE(strategy.dump());
  const LayerAnswer answer = apply_layer(example(strategy));
  expect_values(at::cat(answer.outputs), y);
  expect_values(at::cat(answer.input_gradients), dx);
  expect_values(answer.weight_gradient, {dgamma});
  expect_values(answer.bias_gradient, {1.75});
}

const std::vector<double> kSyncOutput{-3.504189, -2.391216, .391216, -2.947703, .947703, 1.504189};

TEST(WorkedExample, PerTower) {
  expect_answer("per_tower", {-3.038097, -1.679366, 1.717463, -3.809756, .123903, .685854},
                {.870982, -1.219375, .348393, -.029575, .236611, -.207035}, -4.577391);
}

TEST(WorkedExample, Sync) {
  expect_answer("sync", kSyncOutput, {-.005684, -1.497427, .33808, 1.196147, .287817, -.318933}, -3.44326);
}

TEST(WorkedExample, SyncWithTheGradientOfTheTowersOwnShare) {
  expect_answer({{"name", "sync"}, {"gradient", "own_tower"}}, kSyncOutput,
                {.659406, -1.035185, .293203, 1.105793, .285423, -.308761}, -3.44326);
}

TEST(WorkedExample, SyncWithTheGradientStopped) {
  expect_answer({{"name", "sync"}, {"gradient", "stopped"}}, kSyncOutput,
                {.556486, -1.112973, .278243, 1.669459, .139122, -.556486}, -3.44326);
}

TEST(WorkedExample, SyncWithAveragedVariance) {
  expect_answer({{"name", "sync"}, {"variance", "averaged"}},
                {-3.755675, -2.53093, .53093, -3.143303, 1.143303, 1.755675},
                {.07854, -1.521761, .601209, 1.066469, .2113, -.435757}, -3.789053);
}

TEST(WorkedExample, SavedPairIsWhatTheRuleSays) {
  const auto pair = [](const Json& strategy) {
    const LayerAnswer answer = apply_layer(example(strategy));
    return std::vector<double>{answer.running_mean.item<double>(), answer.running_var.item<double>()};
  };
  const auto near = [](const std::vector<double>& actual, double mean, double var) {
    EXPECT_NEAR(actual[0], mean, 1e-12);
    EXPECT_NEAR(actual[1], var, 1e-12);
  };
  near(pair("per_tower"), .4, 2.2);
  near(pair({{"name", "per_tower"}, {"saved_tower", 1}}), .7, 2.8);
  near(pair("single_tower"), .4, 2.2);
  near(pair("averaged"), .55, 2.5);
  near(pair("every_tower"), 1.06, 3.88);
  near(pair("sync"), .55, 2.45);
  near(pair({{"name", "averaged"}, {"merge", "pooled"}}), .55, 2.45);
}

TEST(WorkedExample, HowTheValuesAreDealtToTowersDoesNotMatterToSync) {
  for (const int64_t split : {0, 1, 5}) {
    LayerCase c = example("sync");
    const at::Tensor x = at::cat(c.inputs), dy = at::cat(c.gradients);
    c.inputs = {x.narrow(0, 0, split), x.narrow(0, split, 6 - split)};
    c.gradients = {dy.narrow(0, 0, split), dy.narrow(0, split, 6 - split)};
    expect_values(at::cat(apply_layer(c).outputs), kSyncOutput);
  }
}

}  // namespace
}  // namespace bnlab
