#include "harness/training/optimizers/optimizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {
namespace {

// 10 steps of the optimizer that the options name.
std::unique_ptr<Optimizer> make_optimizer(const Json& options, const std::vector<NamedTensor>& parameters,
                                          const std::string& norm_site = "none") {
  torch::OrderedDict<std::string, at::Tensor> named;
  for (const NamedTensor& p : parameters) named.insert(p.name, p.tensor);
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
  const auto sgd = make_optimizer(options(), {matrix, vector});
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
  const auto sgd = make_optimizer(options(), {frozen, moving});
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

TEST(ParameterGroups, NormLrMultiplierScalesTheParametersOfNormSitesAlone) {
  const NamedTensor norm = parameter("block.norm1.weight", {2}, 1),
                    affine = parameter("block.norm1.bias", {2}, 1),
                    conv = parameter("block.conv1.weight", {2, 2}, 1),
                    namesake =
                        parameter("block.norm10.weight", {2}, 1);  // another layer whose name begins alike
  Json o = plain_options(Json::array());
  o["norm_lr_multiplier"] = 0.25;
  const auto sgd = make_optimizer(o, {norm, affine, conv, namesake}, "block.norm1");
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(norm), 0.25);
  EXPECT_DOUBLE_EQ(fall(affine), 0.25);
  EXPECT_DOUBLE_EQ(fall(conv), 1);
  EXPECT_DOUBLE_EQ(fall(namesake), 1);
}

TEST(ParameterGroups, TheLongestPrefixDecidesAndMultipliersMultiply) {
  const NamedTensor first = parameter("encoder0.conv1.weight", {2, 2}, 1),
                    norm = parameter("encoder0.norm1.weight", {2}, 1),
                    second = parameter("encoder1.conv1.weight", {2, 2}, 1),
                    head = parameter("head.weight", {2, 2}, 1);
  Json o = plain_options({group("encoder1", 0.125), group("encoder", 0.5)});
  o["norm_lr_multiplier"] = 0.5;
  const auto sgd = make_optimizer(o, {first, norm, second, head}, "encoder0.norm1");
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(first), 0.5);
  EXPECT_DOUBLE_EQ(fall(norm), 0.25);
  EXPECT_DOUBLE_EQ(fall(second), 0.125);
  EXPECT_DOUBLE_EQ(fall(head), 1);
}

TEST(ParameterGroups, AGroupsDecayReplacesTheOptimizersWhereThereIsDecay) {
  const NamedTensor own = parameter("encoder.weight", {2, 2}, 1), bias = parameter("encoder.bias", {2}, 1),
                    none = parameter("middle.weight", {2, 2}, 1), other = parameter("head.weight", {2, 2}, 1);
  Json o = plain_options({group("encoder", 1, 0.25), group("middle", 1, 0)});
  o["weight_decay"] = 0.5;
  const auto sgd = make_optimizer(o, {own, bias, none, other});
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(own), 1.25);
  EXPECT_DOUBLE_EQ(fall(bias), 1);  // decay_norm_and_bias is false
  EXPECT_DOUBLE_EQ(fall(none), 1);
  EXPECT_DOUBLE_EQ(fall(other), 1.5);
}

TEST(ParameterGroups, AMultiplierOfZeroChangesNothing) {
  const NamedTensor still = parameter("encoder.weight", {2, 2}, 1),
                    moving = parameter("head.weight", {2, 2}, 1);
  Json o = options();
  o["groups"] = {group("encoder", 0)};
  const auto sgd = make_optimizer(o, {still, moving});
  for (int step = 0; step < 3; ++step) sgd->step(0, kAll);
  EXPECT_TRUE(at::equal(still.tensor, at::ones({2, 2}, at::kDouble)));
  EXPECT_GT(fall(moving), 0.5);
}

TEST(ParameterGroups, AGroupWithoutParametersIsRefused) {
  for (const Json& groups : {Json{group("decoder", 1)}, Json{group("enc", 1), group("encoder", 1)},
                             Json{group("encoder", 1), group("encoder", 2)}}) {
    try {
      make_optimizer(plain_options(groups),
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
  const auto sgd = make_optimizer(options(), {first, second});
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

TEST(Sgd, WithoutMomentumHoldsNothing) {
  const NamedTensor weight = parameter("a", {2, 2}, 1);
  Json o = plain_options(Json::array());
  const auto sgd = make_optimizer(o, {weight});
  EXPECT_TRUE(sgd->state().empty());
  sgd->step(0, kAll);
  EXPECT_DOUBLE_EQ(fall(weight), 1);
  o["momentum"] = 0.5;
  EXPECT_EQ(make_optimizer(o, {weight})->state().size(), 1u);
}

TEST(Sgd, AStepGoesByItsRate) {
  const NamedTensor weight = parameter("a", {2}, 1);
  Json o = plain_options(Json::array());
  o["warmup_steps"] = 4;
  make_optimizer(o, {weight})->step(1, kAll);
  EXPECT_DOUBLE_EQ(fall(weight), 0.5);
}

// What is left of a gradient, seen in the fall of a weight of 1 at rate 1.
TEST(GradientClipping, ShortensTheGradientsOfAllTrainableParametersTogether) {
  Json o = plain_options({group("head", 0.5)});
  o["clip_gradient_norm"] = 2.5;
  // The norm of 16 times 1 and of one 3 is 5; the frozen 100 is no part of it.
  const NamedTensor ones = parameter("encoder.weight", {4, 4}, 1), three = parameter("head.weight", {1}, 3),
                    frozen = parameter("frozen.weight", {1}, 100);
  make_optimizer(o, {ones, three, frozen})->step(0, [](const std::string& name) {
    return name != "frozen.weight";
  });
  EXPECT_NEAR(fall(ones), 0.5, 1e-6);
  EXPECT_NEAR(fall(three), 0.5 * 1.5, 1e-6);
  EXPECT_EQ(fall(frozen), 0);
}

TEST(GradientClipping, LeavesShorterGradientsAsTheyAre) {
  Json o = plain_options(Json::array());
  o["clip_gradient_norm"] = 5.01;
  for (const double gradient : {0.0, 1.0}) {
    const NamedTensor weight = parameter("a", {5, 5}, gradient);
    make_optimizer(o, {weight})->step(0, kAll);
    EXPECT_EQ(fall(weight), gradient);
  }
  make_optimizer(o, {parameter("a", {1}, 1)})->step(0, [](const std::string&) { return false; });
}

// The norm of a filter's gradient is at most a share of that of its weights, filter by filter.
TEST(AdaptiveClipping, ShortensTheGradientOfEachOutputByItsOwnWeights) {
  Json o = plain_options(Json::array());
  o["clip_gradient_adaptive"] = 0.5;
  // Weights are 1: of 4 values each, so that a filter's norm is 2 and its gradient may be 1 long.
  const NamedTensor filters = parameter("encoder.weight", {3, 1, 2, 2}, 0),
                    bias = parameter("encoder.bias", {4}, 5), head = parameter("head.weight", {1, 4}, 5);
  filters.tensor.mutable_grad().copy_(
      at::tensor({0.25, 2.0, 10.0}, filters.tensor.options()).view({3, 1, 1, 1}).expand({3, 1, 2, 2}));
  const at::Tensor before = filters.tensor.detach().clone();
  make_optimizer(o, {filters, bias, head})->step(0, kAll);
  const at::Tensor falls = (before - filters.tensor.detach()).flatten(1);
  for (const auto& [output, expected] : {std::pair{0, 0.25}, {1, 0.5}, {2, 0.5}})
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(falls[output][i].item<double>(), expected, 1e-6) << output;
  EXPECT_NEAR(fall(bias), 0.5, 1e-6);  // one unit: norm 2, and 10 of its gradient
  EXPECT_EQ(fall(head), 5) << "the last layer is left alone";
}

TEST(AdaptiveClipping, AUnitThatStartsAtZeroLeavesIt) {
  Json o = plain_options(Json::array());
  o["clip_gradient_adaptive"] = 0.5;
  const NamedTensor bias = parameter("encoder.bias", {1}, 7);
  const at::NoGradGuard no_grad;
  bias.tensor.detach().zero_();
  make_optimizer(o, {bias})->step(0, kAll);
  EXPECT_NEAR(bias.tensor.item<double>(), -0.5e-3, 1e-9);
}

Json adamw_options() {
  return {{"name", "adamw"},     {"lr", 0.1},   {"schedule", "constant"},
          {"betas", {0.8, 0.9}}, {"eps", 1e-3}, {"weight_decay", 0.5}};
}

// The formula, one number at a time.
struct AdamWByHand {
  double weight = 1, mean = 0, square = 0;
  int updates = 0;

  void update(double gradient, double rate, double decay) {
    ++updates;
    weight -= rate * decay * weight;
    mean = 0.8 * mean + 0.2 * gradient;
    square = 0.9 * square + 0.1 * gradient * gradient;
    weight -= rate * (mean / (1 - std::pow(0.8, updates))) /
              (std::sqrt(square / (1 - std::pow(0.9, updates))) + 1e-3);
  }
};

TEST(AdamW, FollowsItsFormulaAndDecaysMatricesOnly) {
  NamedTensor matrix = parameter("conv.weight", {2, 2}, 0), vector = parameter("norm.weight", {2}, 0);
  const auto adamw = make_optimizer(adamw_options(), {matrix, vector});
  AdamWByHand of_matrix, of_vector;
  for (const double gradient : {0.5, -2.0, 1e-3, 0.0}) {
    matrix.tensor.mutable_grad().fill_(gradient);
    vector.tensor.mutable_grad().fill_(-gradient);
    adamw->step(0, kAll);
    of_matrix.update(gradient, 0.1, 0.5);
    of_vector.update(-gradient, 0.1, 0);
    EXPECT_NEAR(matrix.tensor[1][1].item<double>(), of_matrix.weight, 1e-15);
    EXPECT_NEAR(vector.tensor[1].item<double>(), of_vector.weight, 1e-15);
  }
}

TEST(AdamW, FrozenParametersKeepWhatIsRememberedOfThem) {
  const NamedTensor late = parameter("a", {2, 2}, 0.5), steady = parameter("b", {2, 2}, 0.5);
  const auto adamw = make_optimizer(adamw_options(), {late, steady});
  adamw->step(0, [](const std::string& name) { return name != "a"; });
  EXPECT_TRUE(at::equal(late.tensor, at::ones({2, 2}, at::kDouble)));
  const auto state = adamw->state();  // means, then mean squares
  ASSERT_EQ(state.size(), 4u);
  EXPECT_EQ(state[0].abs().max().item<double>(), 0);
  EXPECT_EQ(state[2].abs().max().item<double>(), 0);
  EXPECT_GT(state[1].min().item<double>(), 0);
  EXPECT_GT(state[3].min().item<double>(), 0);
  adamw->step(1, kAll);
  AdamWByHand first;  // the late parameter's first update
  first.update(0.5, 0.1, 0.5);
  EXPECT_NEAR(late.tensor[0][0].item<double>(), first.weight, 1e-15);
}

TEST(AdamW, HandsOutTheMomentsThatItUses) {
  const NamedTensor weight = parameter("a", {2}, 0.5);
  const auto adamw = make_optimizer(adamw_options(), {weight});
  adamw->step(0, kAll);
  EXPECT_NEAR(adamw->state()[0][0].item<double>(), 0.2 * 0.5, 1e-16);
  EXPECT_NEAR(adamw->state()[1][0].item<double>(), 0.1 * 0.25, 1e-16);
  adamw->state()[0].zero_();
  adamw->state()[1].fill_(1);
  const double before = weight.tensor[0].item<double>();
  adamw->step(0, kAll);
  const double square = (0.9 * 1 + 0.1 * 0.25) / (1 - 0.81);
  EXPECT_NEAR(weight.tensor[0].item<double>(), before - 0.1 * (0.1 / (1 - 0.64)) / (std::sqrt(square) + 1e-3),
              1e-15);
}

TEST(OptimizerReference, NamesEveryOption) {
  const auto reference = std::filesystem::path(__FILE__).parent_path() / "../../experiments/spec.md";
  std::stringstream text;
  text << std::ifstream(reference).rdbuf();
  for (const auto& [optimizer, about] : registered("optimizer"))
    for (const Parameter& option : about.parameters())
      EXPECT_NE(text.str().find("`" + option.name + "`"), std::string::npos) << optimizer << option.name;
}

}  // namespace
}  // namespace bnlab
