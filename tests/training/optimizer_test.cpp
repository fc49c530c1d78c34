#include "harness/training/optimizer.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

// 10 steps of the optimizer that the options name.
std::unique_ptr<Optimizer> make_sgd(const Json& options, const std::vector<NamedTensor>& parameters,
                                    const std::string& norm_site = "none") {
  torch::OrderedDict<std::string, at::Tensor> named;
  for (const NamedTensor& p : parameters) {
    named.insert(p.name, p.tensor);
  }
  return Registered<Optimizer>::create(
      options, {.parameters = named, .norm_sites = {{.name = norm_site}}, .steps = 10});
}

Json options() {
  return {{"name", "sgd"},          {"lr", 0.5},
          {"momentum", 0.5},        {"nesterov", false},
          {"weight_decay", 0.1},    {"decay_norm_and_bias", false},
          {"warmup_steps", 0},      {"schedule", "constant"},
          {"power", 0.9},           {"norm_lr_multiplier", 1.0},
          {"groups", Json::array()}};
}

NamedTensor parameter(const char* name, at::IntArrayRef shape, double gradient) {
  at::Tensor t = at::ones(shape, at::kDouble).requires_grad_(true);
  t.mutable_grad() = at::full(shape, gradient, at::kDouble);
  return {name, t};
}

TEST(Sgd, FollowsItsFormulaAndDecaysMatricesOnly) {
  const NamedTensor matrix = parameter("conv.weight", {2, 2}, 1.0),
                    vector = parameter("norm.weight", {2}, 1.0);
  const auto sgd = make_sgd(options(), {matrix, vector});
  const auto all = [](const std::string&) { return true; };
  sgd->step(0, all);
  // buffer = 1 + 0.1 * 1 = 1.1, w = 1 - 0.5 * 1.1 = 0.45; without decay buffer = 1, w = 0.5
  EXPECT_NEAR(matrix.tensor[0][0].item<double>(), 0.45, 1e-15);
  EXPECT_NEAR(vector.tensor[0].item<double>(), 0.5, 1e-15);
  sgd->step(0, all);
  // buffer = 0.5 * 1.1 + 1 + 0.1 * 0.45 = 1.595, w = 0.45 - 0.7975; buffer = 1.5, w = -0.25
  EXPECT_NEAR(matrix.tensor[0][0].item<double>(), -0.3475, 1e-15);
  EXPECT_NEAR(vector.tensor[0].item<double>(), -0.25, 1e-15);
}

TEST(Sgd, LeavesFrozenParametersUnchangedToTheBit) {
  const NamedTensor frozen = parameter("a", {3, 3}, 1.0), moving = parameter("b", {3, 3}, 1.0);
  const auto sgd = make_sgd(options(), {frozen, moving});
  sgd->step(0, [](const std::string& name) { return name != "a"; });
  EXPECT_TRUE(at::equal(frozen.tensor, at::ones({3, 3}, at::kDouble)));
  EXPECT_FALSE(at::equal(moving.tensor, at::ones({3, 3}, at::kDouble)));
}

const auto kAll = [](const std::string&) { return true; };

// With rate 1, gradient 1 and neither momentum nor decay a weight of 1 falls by its multiplier; with decay d
// by multiplier * (1 + d).
double fall(const NamedTensor& p) {
  return 1 - p.tensor.flatten()[0].item<double>();
}

Json plain_options(const Json& groups) {
  Json o = options();
  o["lr"] = 1.0;
  o["momentum"] = 0.0;
  o["weight_decay"] = 0.0;
  o["groups"] = groups;
  return o;
}

Json group(const char* prefix, double lr_multiplier, const Json& weight_decay = nullptr) {
  return {{"prefix", prefix}, {"lr_multiplier", lr_multiplier}, {"weight_decay", weight_decay}};
}

TEST(SgdGroups, NormLrMultiplierScalesTheParametersOfNormSitesAlone) {
  const NamedTensor norm = parameter("block.norm1.weight", {2}, 1),
                    affine = parameter("block.norm1.bias", {2}, 1),
                    conv = parameter("block.conv1.weight", {2, 2}, 1),
                    namesake =
                        parameter("block.norm10.weight", {2}, 1);  // another layer whose name begins alike
  Json o = plain_options(Json::array());
  o["norm_lr_multiplier"] = 0.25;
  const auto sgd = make_sgd(o, {norm, affine, conv, namesake}, "block.norm1");
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(norm), 0.25);
  EXPECT_DOUBLE_EQ(fall(affine), 0.25);
  EXPECT_DOUBLE_EQ(fall(conv), 1);
  EXPECT_DOUBLE_EQ(fall(namesake), 1);
}

TEST(SgdGroups, TheLongestPrefixDecidesAndMultipliersMultiply) {
  const NamedTensor first = parameter("encoder0.conv1.weight", {2, 2}, 1),
                    norm = parameter("encoder0.norm1.weight", {2}, 1),
                    second = parameter("encoder1.conv1.weight", {2, 2}, 1),
                    head = parameter("head.weight", {2, 2}, 1);
  Json o = plain_options({group("encoder1", 0.125), group("encoder", 0.5)});
  o["norm_lr_multiplier"] = 0.5;
  const auto sgd = make_sgd(o, {first, norm, second, head}, "encoder0.norm1");
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(first), 0.5);
  EXPECT_DOUBLE_EQ(fall(norm), 0.25);
  EXPECT_DOUBLE_EQ(fall(second), 0.125);
  EXPECT_DOUBLE_EQ(fall(head), 1);
}

TEST(SgdGroups, AGroupsDecayReplacesTheOptimizersWhereThereIsDecay) {
  const NamedTensor own = parameter("encoder.weight", {2, 2}, 1), bias = parameter("encoder.bias", {2}, 1),
                    none = parameter("middle.weight", {2, 2}, 1), other = parameter("head.weight", {2, 2}, 1);
  Json o = plain_options({group("encoder", 1, 0.25), group("middle", 1, 0)});
  o["weight_decay"] = 0.5;
  const auto sgd = make_sgd(o, {own, bias, none, other});
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(own), 1.25);
  EXPECT_DOUBLE_EQ(fall(bias), 1);  // decay_norm_and_bias is false
  EXPECT_DOUBLE_EQ(fall(none), 1);
  EXPECT_DOUBLE_EQ(fall(other), 1.5);
}

TEST(SgdGroups, AMultiplierOfZeroChangesNothing) {
  const NamedTensor still = parameter("encoder.weight", {2, 2}, 1),
                    moving = parameter("head.weight", {2, 2}, 1);
  Json o = options();
  o["groups"] = {group("encoder", 0)};
  const auto sgd = make_sgd(o, {still, moving});
  for (int step = 0; step < 3; ++step) {
    sgd->step(0, kAll);
  }
  EXPECT_TRUE(at::equal(still.tensor, at::ones({2, 2}, at::kDouble)));
  EXPECT_GT(fall(moving), 0.5);
}

TEST(SgdGroups, AGroupWithoutParametersIsRefused) {
  for (const Json& groups : {Json{group("decoder", 1)}, Json{group("enc", 1), group("encoder", 1)},
                             Json{group("encoder", 1), group("encoder", 2)}}) {
    try {
      make_sgd(plain_options(groups),
               {parameter("encoder.weight", {2}, 1), parameter("head.weight", {2}, 1)});
      ADD_FAILURE() << "no error for " << groups;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::refused);
      EXPECT_NE(std::string(error.what()).find("names begin with: encoder, head"), std::string::npos)
          << error.what();
    }
  }
}

TEST(Sgd, HandsOutTheMomentaThatItUses) {
  const NamedTensor first = parameter("a", {2, 2}, 1), second = parameter("b", {3}, 2);
  const auto sgd = make_sgd(options(), {first, second});
  sgd->step(0, kAll);
  const auto momenta = sgd->state();
  ASSERT_EQ(momenta.size(), 2u);
  EXPECT_TRUE(at::equal(momenta[0], at::full({2, 2}, 1.1, at::kDouble)));  // 1 + 0.1 * 1
  EXPECT_TRUE(at::equal(momenta[1], at::full({3}, 2.0, at::kDouble)));
  sgd->state()[1].zero_();
  const double before = second.tensor[0].item<double>();
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(second.tensor[0].item<double>(), before - 0.5 * 2);  // the momentum began at zero again
}

TEST(Sgd, ItsRateRisesLinearlyThenFallsPolynomially) {
  Json o = options();
  o["schedule"] = "poly";
  o["power"] = 2.0;
  o["warmup_steps"] = 2;
  EXPECT_DOUBLE_EQ(make_sgd(o, {})->learning_rate(0), 0.25);        // half of the way up
  EXPECT_DOUBLE_EQ(make_sgd(o, {})->learning_rate(5), 0.5 * 0.25);  // (1 - 1/2)^2
  o["schedule"] = "constant";
  EXPECT_DOUBLE_EQ(make_sgd(o, {})->learning_rate(9), 0.5);
}

TEST(Sgd, AStepGoesByItsRate) {
  const NamedTensor weight = parameter("a", {2}, 1);
  Json o = plain_options(Json::array());
  o["warmup_steps"] = 4;
  make_sgd(o, {weight})->step(1, kAll);
  EXPECT_DOUBLE_EQ(fall(weight), 0.5);
}

TEST(OptimizerReference, NamesEveryOption) {
  const auto readme = std::filesystem::path(__FILE__).parent_path() / "../../experiments/README.md";
  std::stringstream text;
  text << std::ifstream(readme).rdbuf();
  for (const auto& [optimizer, about] : registered("optimizer")) {
    for (const Parameter& option : about.parameters) {
      EXPECT_NE(text.str().find("`" + option.name + "`"), std::string::npos) << optimizer << option.name;
    }
  }
}

}  // namespace
}  // namespace bnlab
