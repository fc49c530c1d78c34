// mabn: the formulas of the paper step by step, and which convolutions are centred.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/counting_communicator.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/strategy.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"

namespace bnlab {
namespace {

Json mabn(const Json& more) {
  Json strategy = {{"name", "mabn"}, {"affine", false}, {"eps", 1e-3}};
  strategy.update(more);
  return resolved_strategy(strategy);
}

at::Tensor per_channel_mean(const at::Tensor& t) {
  return t.mean(std::vector<int64_t>{0, 2, 3});
}

at::Tensor shaped(const at::Tensor& v) {
  return v.view({1, -1, 1, 1});
}

// One tower, five steps, a window of two: from step 3 on the last two steps' moments normalise, and the
// gradient meets the mean of their two moments.
TEST(Mabn, FromTheStepBehindAFullWindowItsMeansNormalise) {
  const Json strategy = mabn({{"window", 2}, {"warmup_steps", 0}});
  const LayerCase c =
      make_case(strategy, {.towers = {4}, .modes = std::vector<Mode>(5, Mode::train), .has_state = false});
  const LayerAnswer answer = apply_layer(c);
  std::vector<at::Tensor> squares, products;
  for (size_t s = 0; s < 5; ++s) {
    const at::Tensor &x = c.steps[s].inputs[0], &g = c.steps[s].gradients[0];
    squares.push_back(per_channel_mean(x * x));
    const bool moving = s >= 2;
    const at::Tensor deviation = ((moving ? (squares[s] + squares[s - 1]) / 2 : squares[s]) + 1e-3).sqrt();
    const at::Tensor z = x / shaped(deviation);
    products.push_back(per_channel_mean(g * z));
    const at::Tensor product = moving ? (products[s] + products[s - 1]) / 2 : products[s];
    SCOPED_TRACE(s);
    EXPECT_LT(relative_error(answer.steps[s].outputs[0], z), 1e-12);
    EXPECT_LT(
        relative_error(answer.steps[s].input_gradients[0], (g - z * shaped(product)) / shaped(deviation)),
        1e-12);
  }
}

// r comes from the running E[x^2] before the step, within its limits, and is a constant for the gradient.
TEST(Mabn, CorrectsTowardsTheRunningMomentsFromItsStepOn) {
  const Json strategy =
      mabn({{"window", 1}, {"warmup_steps", 0}, {"renorm_from_step", 2}, {"r_max", 1.25}, {"momentum", 0.5}});
  const LayerCase c =
      make_case(strategy, {.towers = {4}, .modes = std::vector<Mode>(4, Mode::train), .has_state = false});
  const LayerAnswer answer = apply_layer(c);
  at::Tensor running = at::ones({8}, at::kDouble);
  for (size_t s = 0; s < 4; ++s) {
    const at::Tensor& x = c.steps[s].inputs[0];
    const at::Tensor square = per_channel_mean(x * x);
    const at::Tensor r =
        s < 2 ? at::ones_like(square) : ((square + 1e-3).sqrt() / (running + 1e-3).sqrt()).clamp(0.8, 1.25);
    SCOPED_TRACE(s);
    EXPECT_LT(relative_error(answer.steps[s].outputs[0], x / shaped((square + 1e-3).sqrt()) * shaped(r)),
              1e-12);
    running = 0.5 * running + 0.5 * square;
    EXPECT_LT(relative_error(answer.steps[s].running_var, running), 1e-12);
    EXPECT_EQ(answer.steps[s].running_mean.abs().max().item<double>(), 0);
  }
}

// Only the value that is not finite is lost: the window goes on with the steps around it.
TEST(Mabn, ValuesThatAreNotFiniteEnterNoWindow) {
  LayerCase c = make_case(mabn({{"window", 2}, {"warmup_steps", 0}}),
                          {.towers = {4}, .modes = std::vector<Mode>(5, Mode::train), .has_state = false});
  c.steps[3].inputs[0].select(1, 2)[0][0][0] = std::numeric_limits<double>::infinity();
  const LayerAnswer answer = apply_layer(c);
  const auto square = [&](size_t s) { return per_channel_mean(c.steps[s].inputs[0].square())[2]; };
  const at::Tensor expected = c.steps[4].inputs[0].select(1, 2) / ((square(2) + square(4)) / 2 + 1e-3).sqrt();
  EXPECT_LT(relative_error(answer.steps[4].outputs[0].select(1, 2), expected), 1e-12);
  EXPECT_EQ(answer.nonfinite_channels, 1);
}

// The square of 1e20 is finite in float64, and not in the float32 of the window.
TEST(Mabn, ASquareThatTheWindowCannotHoldEntersNone) {
  LayerCase c = make_case(mabn({{"window", 2}, {"warmup_steps", 0}}),
                          {.towers = {4}, .modes = std::vector<Mode>(5, Mode::train), .has_state = false});
  c.dtype = at::kFloat;
  for (auto& step : c.steps)
    for (auto& input : step.inputs) input = input.to(at::kFloat);
  c.steps[3].inputs[0].select(1, 2).fill_(1e20);
  const LayerAnswer answer = apply_layer(c);
  const auto square = [&](size_t s) { return per_channel_mean(c.steps[s].inputs[0].square())[2]; };
  const at::Tensor expected = c.steps[4].inputs[0].select(1, 2) / ((square(2) + square(4)) / 2 + 1e-3).sqrt();
  EXPECT_LT(relative_error(answer.steps[4].outputs[0].select(1, 2), expected), 1e-5);
}

TEST(Mabn, CannotRememberOnceForAllPassesOfAStep) {
  RunOutline run{.passes_per_step = 2, .statistics_per_step = true};
  EXPECT_THROW(refuse_misfits("strategy", mabn(Json::object()), run), Error);
  EXPECT_THROW(refuse_misfits("strategy", resolved_strategy({{"name", "frozen"}, {"base", "mabn"}}), run),
               Error);
  run.passes_per_step = 1;
  refuse_misfits("strategy", mabn(Json::object()), run);
}

TEST(Mabn, CentresTheFiltersThatANormFollows) {
  Ledger ledger;
  CountingCommunicator communicator(1, ledger);
  const ConvSite site{.name = "conv", .in = 4, .out = 6, .padding = 0};
  const auto weight_in_force = [&](const Json& options, bool norm_follows) {
    const auto strategy = Registered<Strategy>::create(
        mabn(options), {.statistics = communicator, .host = communicator, .dtype = at::kDouble});
    ConvSite asked = site;
    asked.norm_follows = norm_follows;
    const auto conv = strategy->conv(asked);
    Pass pass;
    pass.towers = Towers({site.in * 9}, 1, 0);
    const at::Tensor one_hot = at::eye(site.in * 9, at::kDouble).view({-1, site.in, 3, 3});
    return conv->forward(one_hot, {}, pass).detach().view({site.in * 9, site.out}).t();
  };
  const at::Tensor v = initial_weights(site, 0).flatten(1);
  EXPECT_LT(relative_error(weight_in_force(Json::object(), true), v - v.mean(1, true)), 1e-12);
  EXPECT_LT(relative_error(weight_in_force(Json::object(), false), v), 1e-12);
  EXPECT_LT(relative_error(weight_in_force({{"centred_weights", false}}, true), v), 1e-12);
}

}  // namespace
}  // namespace bnlab
