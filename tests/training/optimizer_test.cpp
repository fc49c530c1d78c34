#include "harness/training/optimizer.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

Json options() {
  return {{"name", "sgd"},       {"lr", 0.5},
          {"momentum", 0.5},     {"nesterov", false},
          {"weight_decay", 0.1}, {"decay_norm_and_bias", false},
          {"warmup_steps", 0},   {"schedule", "constant"},
          {"power", 0.9}};
}

NamedTensor parameter(const char* name, at::IntArrayRef shape, double gradient) {
  at::Tensor t = at::ones(shape, at::kDouble).requires_grad_(true);
  t.mutable_grad() = at::full(shape, gradient, at::kDouble);
  return {name, t};
}

TEST(Sgd, FollowsItsFormulaAndDecaysMatricesOnly) {
  const NamedTensor matrix = parameter("conv.weight", {2, 2}, 1.0),
                    vector = parameter("norm.weight", {2}, 1.0);
  Sgd sgd(options(), {matrix, vector});
  const auto all = [](const std::string&) { return true; };
  sgd.step(0.5, all);
  // buffer = 1 + 0.1 * 1 = 1.1, w = 1 - 0.5 * 1.1 = 0.45; without decay buffer = 1, w = 0.5
  EXPECT_NEAR(matrix.tensor[0][0].item<double>(), 0.45, 1e-15);
  EXPECT_NEAR(vector.tensor[0].item<double>(), 0.5, 1e-15);
  sgd.step(0.5, all);
  // buffer = 0.5 * 1.1 + 1 + 0.1 * 0.45 = 1.595, w = 0.45 - 0.7975; buffer = 1.5, w = -0.25
  EXPECT_NEAR(matrix.tensor[0][0].item<double>(), -0.3475, 1e-15);
  EXPECT_NEAR(vector.tensor[0].item<double>(), -0.25, 1e-15);
}

TEST(Sgd, LeavesFrozenParametersUnchangedToTheBit) {
  const NamedTensor frozen = parameter("a", {3, 3}, 1.0), moving = parameter("b", {3, 3}, 1.0);
  Sgd sgd(options(), {frozen, moving});
  sgd.step(0.5, [](const std::string& name) { return name != "a"; });
  EXPECT_TRUE(at::equal(frozen.tensor, at::ones({3, 3}, at::kDouble)));
  EXPECT_FALSE(at::equal(moving.tensor, at::ones({3, 3}, at::kDouble)));
}

TEST(LearningRate, RisesLinearlyThenFallsPolynomially) {
  Json o = options();
  o["schedule"] = "poly";
  o["power"] = 2.0;
  o["warmup_steps"] = 2;
  EXPECT_DOUBLE_EQ(learning_rate(o, 0, 10), 0.25);        // half of the way up
  EXPECT_DOUBLE_EQ(learning_rate(o, 5, 10), 0.5 * 0.25);  // (1 - 1/2)^2
  o["schedule"] = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(o, 9, 10), 0.5);
}

}  // namespace
}  // namespace bnlab
