// The layer of the BN family: what each tower is normalised by, what is counted and what is remembered.
#include <gtest/gtest.h>
#include <torch/autograd.h>
#include <torch/types.h>

#include <limits>

#include "harness/communicator/world.hpp"
#include "harness/strategy.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

TEST(PerTower, EqualsBatchNormOfEachTower) {
  const LayerCase c = make_case("per_tower", {.towers = {2, 0, 5, 3}});
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  at::Tensor dweight = at::zeros_like(c.weight);
  for (const size_t t : {0, 2, 3}) {
    LayerCase one = c;
    one.steps = {
        {.mode = Mode::train, .inputs = {c.steps[0].inputs[t]}, .gradients = {c.steps[0].gradients[t]}}};
    const LayerStepAnswer expected = plain_batch_norm(one).steps[0];
    EXPECT_LT(relative_error(answer.outputs[t], expected.outputs[0]), kExact);
    EXPECT_LT(relative_error(answer.input_gradients[t], expected.input_gradients[0]), kExact);
    dweight += expected.weight_gradient;
  }
  EXPECT_LT(relative_error(answer.weight_gradient, dweight), kExact);
  EXPECT_EQ(answer.outputs[1].numel(), 0);
}

TEST(EdgeCases, OneValuePerChannelIsRefusedByTheSetThatNormalises) {
  const auto message = [](const Json& strategy, const std::vector<int64_t>& towers) -> std::string {
    try {
      apply_layer(make_case(strategy, {.towers = towers, .sample = {4}}));
      return "";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(message("per_tower", {3, 1}),
            "more than 1 value per channel is needed to normalise (site site, strategy per_tower, set of 1)");
  EXPECT_EQ(message("sync", {1, 1}), "");
  EXPECT_EQ(message("sync", {0, 1}),
            "more than 1 value per channel is needed to normalise (site site, strategy sync, set of 1)");
  EXPECT_NE(message({{"name", "sync"}, {"group_size", 2}}, {2, 2, 0, 1}), "");
}

// In every placement: ranks that see the same moments must not each count them. Where towers are remembered
// by themselves, only the tower's part of the pair stays.
TEST(EdgeCases, ANonFiniteChannelIsCountedOnceAndNotRemembered) {
  for (const Json& strategy : std::vector<Json>{"per_tower",
                                                "averaged",
                                                "every_tower",
                                                "batch_renorm",
                                                {{"name", "averaged"}, {"merge", "pooled"}},
                                                {{"name", "batch_renorm"}, {"scope", "pooled"}},
                                                "sync",
                                                {{"name", "sync"}, {"group_size", 2}},
                                                {{"name", "sync"}, {"route", "all_reduce"}}}) {
    LayerCase c = make_case(strategy, {.towers = {3, 3, 3, 3}, .has_state = false});
    c.steps[0].gradients.clear();
    c.steps[0].inputs[0].select(1, 1)[0][0][0] = std::numeric_limits<double>::quiet_NaN();
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(strategy.dump() + ", " + std::to_string(ranks) + " ranks");
      const LayerAnswer all = apply_layer(c, ranks);
      EXPECT_EQ(all.nonfinite_channels, 1);
      const LayerStepAnswer& answer = all.steps[0];
      if (strategy == "averaged" || strategy == "every_tower") {
        EXPECT_TRUE(answer.running_mean[1].isfinite().item<bool>());
        EXPECT_TRUE(answer.running_var[1].isfinite().item<bool>());
      } else {
        EXPECT_EQ(answer.running_mean[1].item<double>(), 0);
        EXPECT_EQ(answer.running_var[1].item<double>(), 1);
      }
      EXPECT_NE(answer.running_mean[0].item<double>(), 0);
    }
  }
}

// The gradient passes where the sum with the residual is positive; without one, where the normalised value
// is. The last strategy's gradient is about another mean than the one that normalises.
TEST(Residual, DecidesWithTheNormalisedValueWhatPasses) {
  for (const Json& strategy :
       std::vector<Json>{"sync", "per_tower", "group_norm", {{"name", "sync"}, {"variance", "averaged"}}}) {
    for (const bool has_residual : {true, false}) {
      SCOPED_TRACE(strategy.dump() + (has_residual ? ", residual" : ""));
      const auto world = join_world({}, at::kCPU);
      const auto made = Registered<Strategy>::create(
          resolved_strategy(strategy),
          {.statistics = world->statistics(), .host = world->host(), .dtype = at::kDouble});
      const auto tensor = [] { return at::randn({4, 32, 3, 3}, at::kDouble).requires_grad_(); };
      const Pass pass{Towers({2, 2}, 1, 0), 1, {0, 1}, Mode::train};
      const at::Tensor x = tensor(), dy = at::randn({4, 32, 3, 3}, at::kDouble);
      const at::Tensor residual = has_residual ? tensor() : at::Tensor();
      const auto layer = [&](Activation activation) { return made->norm({"site", 32, activation}); };
      const auto gradients = [&](const at::Tensor& y) {
        std::vector<at::Tensor> inputs = {x};
        if (has_residual) inputs.push_back(residual);
        return at::cat(torch::autograd::grad({y}, inputs, {dy}));
      };
      const at::Tensor y = layer(Activation::relu)->forward(x, residual, pass);
      const at::Tensor linear = layer(Activation::none)->forward(x, {}, pass);
      const at::Tensor expected = at::relu(has_residual ? linear + residual : linear);
      EXPECT_LT(relative_error(y, expected), kExact);
      EXPECT_LT(relative_error(gradients(y), gradients(expected)), kExact);
    }
  }
}

TEST(Momentum, NullIsTheCumulativeAverage) {
  LayerCase c = make_case({{"name", "sync"}, {"momentum", nullptr}}, {.towers = {3, 3}, .sample = {4}});
  c.steps.assign(3, c.steps[0]);  // the same batch three times: the average is the batch's own moments
  const LayerStepAnswer answer = apply_layer(c).steps.back();
  const at::Tensor x = at::cat(c.steps[0].inputs);
  EXPECT_LT(relative_error(answer.running_mean, x.mean(0)), kExact);
  EXPECT_LT(relative_error(answer.running_var, x.var(0, /*unbiased=*/true)), kExact);
}

TEST(Evaluation, UsesTheSavedPairAndChangesNothing) {
  for (const char* strategy : {"per_tower", "averaged", "sync"}) {
    const LayerCase c = make_case(strategy, {.towers = {3, 1}, .modes = {Mode::evaluate_saved}});
    const LayerStepAnswer answer = apply_layer(c).steps[0];
    const at::Tensor expected = at::batch_norm(at::cat(c.steps[0].inputs), c.weight, c.bias, c.running_mean,
                                               c.running_var, false, 0.1, 1e-5, false);
    EXPECT_LT(relative_error(at::cat(answer.outputs), expected), kExact);
    EXPECT_TRUE(at::equal(answer.running_mean, c.running_mean));
  }
}

TEST(Evaluation, UnderBatchStatisticsNormalisesAsInTrainingAndRemembersNothing) {
  LayerCase c = make_case("sync", {.towers = {3, 2}});
  const LayerStepAnswer trained = apply_layer(c).steps[0];
  c.steps[0].mode = Mode::evaluate_batch;
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  EXPECT_TRUE(at::equal(at::cat(answer.outputs), at::cat(trained.outputs)));
  EXPECT_TRUE(at::equal(answer.running_mean, c.running_mean));
}

}  // namespace
}  // namespace bnlab
