// Two towers, one channel, six values: every output, gradient and saved pair worked out by hand and checked
// by finite differences. x A = (1, 3, 8), B = (2, 9, 10); dy A = (1, -2, .5), B = (3, .25, -1); gamma 2,
// beta -1, eps 1e-5, momentum 0.1, running statistics 0 and 1 unless said otherwise.
#include <gtest/gtest.h>

#include "harness/layer/layer_case.hpp"

namespace bnlab {
namespace {

at::Tensor column(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).view({-1, 1});
}

LayerCase example(const Json& strategy) {
  LayerCase c;
  c.strategy = resolved_strategy(strategy);
  LayerStep step;
  step.inputs = {column({1, 3, 8}), column({2, 9, 10})};
  step.gradients = {column({1, -2, .5}), column({3, .25, -1})};
  c.steps = {step};
  c.weight = at::tensor({2.0}, at::kDouble);
  c.bias = at::tensor({-1.0}, at::kDouble);
  return c;
}

LayerCase example_from_2_and_4(const Json& strategy) {
  LayerCase c = example(strategy);
  c.running_mean = at::tensor({2.0}, at::kDouble);
  c.running_var = at::tensor({4.0}, at::kDouble);
  return c;
}

// The printed values have six decimals.
void expect_values(const at::Tensor& actual, const std::vector<double>& expected, double tolerance = 6e-7) {
  ASSERT_EQ(actual.numel(), static_cast<int64_t>(expected.size()));
  const at::Tensor flat = actual.reshape({-1}).contiguous();
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(flat.const_data_ptr<double>()[i], expected[i], tolerance) << "value " << i;
}

struct Row {
  std::vector<double> y, dx;  // tower A, then B
  double dgamma;
};

void expect_row(const LayerCase& c, const Row& row) {
  SCOPED_TRACE(c.strategy.dump());
  for (const int ranks : {1, 2}) {
    const LayerStepAnswer answer = apply_layer(c, ranks).steps.back();
    expect_values(at::cat(answer.outputs), row.y);
    expect_values(at::cat(answer.input_gradients), row.dx);
    expect_values(answer.weight_gradient, {row.dgamma});
    expect_values(answer.bias_gradient, {1.75});
  }
}

const Row kPerTower{{-3.038097, -1.679366, 1.717463, -3.809756, .123903, .685854},
                    {.870982, -1.219375, .348393, -.029575, .236611, -.207035},
                    -4.577391};
const Row kSync{{-3.504189, -2.391216, .391216, -2.947703, .947703, 1.504189},
                {-.005684, -1.497427, .33808, 1.196147, .287817, -.318933},
                -3.44326};
const std::vector<double> kRunningOutput{-1.999999, -.000001, 4.999993, -1, 5.999991, 6.99999};

TEST(WorkedExample, PerTower) {
  for (const Json& strategy : std::vector<Json>{"per_tower",
                                                "single_tower",
                                                "last_tower",
                                                "every_tower",
                                                "averaged",
                                                {{"name", "averaged"}, {"merge", "pooled"}},
                                                {{"name", "ghost"}, {"virtual_batch", 3}},
                                                {{"name", "sync"}, {"group_size", 1}}}) {
    expect_row(example(strategy), kPerTower);
  }
}

TEST(WorkedExample, SyncByAnyRoute) {
  for (const char* route : {"all_gather", "all_reduce", "reduce_broadcast", "host", "gather_activations",
                            "gather_activations_host"})
    expect_row(example({{"name", "sync"}, {"route", route}}), kSync);
  expect_row(example({{"name", "sync"}, {"moments", "e_x2"}}), kSync);
  expect_row(example({{"name", "precise"}, {"base", "sync"}, {"batches", 1}}), kSync);
}

TEST(WorkedExample, SyncWithTheGradientOfTheTowersOwnShare) {
  expect_row(example({{"name", "sync"}, {"gradient", "own_tower"}}),
             {kSync.y, {.659406, -1.035185, .293203, 1.105793, .285423, -.308761}, -3.44326});
}

TEST(WorkedExample, SyncWithTheGradientStopped) {
  expect_row(example({{"name", "sync"}, {"gradient", "stopped"}}),
             {kSync.y, {.556486, -1.112973, .278243, 1.669459, .139122, -.556486}, -3.44326});
}

TEST(WorkedExample, SyncWithAveragedVariance) {
  expect_row(example({{"name", "sync"}, {"variance", "averaged"}}),
             {{-3.755675, -2.53093, .53093, -3.143303, 1.143303, 1.755675},
              {.07854, -1.521761, .601209, 1.066469, .2113, -.435757},
              -3.789053});
}

TEST(WorkedExample, Frozen) {
  expect_row(example_from_2_and_4("frozen"),
             {kRunningOutput, {.999999, -1.999998, .499999, 2.999996, .25, -.999999}, -3.124996});
}

TEST(WorkedExample, BatchRenorm) {
  // Nothing is clipped: the running statistics normalise, but the gradient passes through the batch's.
  expect_row(example_from_2_and_4({{"name", "batch_renorm"}, {"r_max", 3}, {"d_max", 5}}),
             {kRunningOutput, {1.28205, -1.79487, .51282, -.05263, .421051, -.368422}, -3.124996});
  expect_row(example_from_2_and_4({{"name", "batch_renorm"}, {"r_max", 1.25}, {"d_max", .5}}),
             {{-2.547622, -.849207, 3.396829, -3.512195, 1.404878, 2.107317},
              {1.088727, -1.524218, .435491, -.036969, .295763, -.258794},
              -4.846738});
  expect_row(
      example_from_2_and_4({{"name", "batch_renorm"}, {"r_max", 1.25}, {"d_max", .5}, {"scope", "pooled"}}),
      {{-3.130236, -1.73902, 1.73902, -2.434628, 2.434628, 3.130236},
       {-.007105, -1.871784, .4226, 1.495184, .359771, -.398666},
       -3.429075});
}

TEST(WorkedExample, ShuffleIsPerTowerOnTheValuesThatItDealsOut) {
  const LayerCase c = example("shuffle");
  for (const int ranks : {1, 2}) {
    const LayerStepAnswer shuffled = apply_layer(c, ranks).steps[0];
    ASSERT_EQ(shuffled.permutation.size(), 6u);
    const at::Tensor places = at::tensor(shuffled.permutation, at::kLong);
    LayerCase dealt = example("per_tower");
    for (auto* towers : {&dealt.steps[0].inputs, &dealt.steps[0].gradients})
      *towers = at::cat(*towers).index_select(0, places).split(3);
    const LayerStepAnswer expected = apply_layer(dealt).steps[0];
    const auto near = [&](const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& moved) {
      EXPECT_LT((at::cat(actual).index_select(0, places) - at::cat(moved)).abs().max().item<double>(), 1e-12);
    };
    near(shuffled.outputs, expected.outputs);
    near(shuffled.input_gradients, expected.input_gradients);
  }
}

TEST(WorkedExample, SavedPairIsWhatTheRuleSays) {
  const auto expect_pair = [](const LayerCase& c, double mean, double var) {
    SCOPED_TRACE(c.strategy.dump());
    for (const int ranks : {1, 2}) {
      const LayerStepAnswer answer = apply_layer(c, ranks).steps.back();
      EXPECT_NEAR(answer.running_mean.item<double>(), mean, 1e-12);
      EXPECT_NEAR(answer.running_var.item<double>(), var, 1e-12);
    }
  };
  expect_pair(example("per_tower"), .4, 2.2);
  expect_pair(example({{"name", "per_tower"}, {"saved_tower", 1}}), .7, 2.8);
  expect_pair(example("single_tower"), .4, 2.2);
  expect_pair(example({{"name", "single_tower"}, {"tower", 1}}), .7, 2.8);
  expect_pair(example("last_tower"), .7, 2.8);
  expect_pair(example("every_tower"), 1.06, 3.88);
  expect_pair(example("averaged"), .55, 2.5);
  expect_pair(example({{"name", "averaged"}, {"merge", "pooled"}}), .55, 2.45);
  expect_pair(example({{"name", "ghost"}, {"virtual_batch", 3}}), .55, 2.5);
  expect_pair(example("sync"), .55, 2.45);
  expect_pair(example("batch_renorm"), .55, 2.5);
  expect_pair(example({{"name", "batch_renorm"}, {"scope", "pooled"}}), .55, 2.45);
  expect_pair(example_from_2_and_4("frozen"), 2, 4);
  // Recomputed over the one batch: its mean 33/6 and its unbiased variance 77.5/5.
  expect_pair(example({{"name", "precise"}, {"base", "per_tower"}, {"batches", 1}}), 5.5, 15.5);
}

// TensorFlow's formula: an average that begins at 0 with a decay of 0.9, over 1 - 0.9^k after k updates. The
// towers' means are 4 and 7, their unbiased variances 13 and 19.
TEST(WorkedExample, ZeroDebiasTakesOffWhatTheAveragesBeganWith) {
  const auto expect_debiased = [](const Json& strategy,
                                  const std::vector<std::pair<double, double>>& written) {
    SCOPED_TRACE(strategy.dump());
    LayerCase c = example_from_2_and_4(strategy);
    c.steps.assign(3, LayerStep(c.steps[0]));
    for (const int ranks : {1, 2}) {
      const LayerAnswer answer = apply_layer(c, ranks);
      double mean = 0, var = 0, left = 1;
      for (const LayerStepAnswer& step : answer.steps) {
        for (const auto& [m, v] : written) {
          mean = .9 * mean + .1 * m;
          var = .9 * var + .1 * v;
          left *= .9;
        }
        EXPECT_NEAR(step.running_mean.item<double>(), mean / (1 - left), 1e-12);
        EXPECT_NEAR(step.running_var.item<double>(), var / (1 - left), 1e-12);
      }
    }
  };
  expect_debiased({{"name", "every_tower"}, {"running", "zero_debias"}}, {{4, 13}, {7, 19}});
  expect_debiased({{"name", "averaged"}, {"running", "zero_debias"}}, {{5.5, 16}});
  expect_debiased({{"name", "sync"}, {"running", "zero_debias"}}, {{5.5, 15.5}});
}

TEST(WorkedExample, HowTheValuesAreDealtToTowersDoesNotMatterToSync) {
  for (const int64_t split : {0, 1, 5}) {
    SCOPED_TRACE(split);
    LayerCase c = example("sync");
    for (auto* towers : {&c.steps[0].inputs, &c.steps[0].gradients}) {
      const at::Tensor all = at::cat(*towers);
      *towers = {all.narrow(0, 0, split), all.narrow(0, split, 6 - split)};
    }
    expect_row(c, kSync);
    const LayerStepAnswer answer = apply_layer(c).steps[0];
    EXPECT_NEAR(answer.running_mean.item<double>(), .55, 1e-12);
    EXPECT_NEAR(answer.running_var.item<double>(), 2.45, 1e-12);
  }
}

}  // namespace
}  // namespace bnlab
