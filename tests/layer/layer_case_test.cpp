#include "harness/layer/layer_case.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "harness/verify/comparison.hpp"

namespace bnlab {
namespace {

LayerStep random_step(const std::vector<int64_t>& samples, Mode mode = Mode::train) {
  LayerStep step;
  step.mode = mode;
  for (size_t t = 0; t < samples.size(); ++t) {
    step.inputs.push_back(at::randn({samples[t], 3, 2}, at::kDouble) + static_cast<double>(t));
    step.gradients.push_back(at::randn({samples[t], 3, 2}, at::kDouble));
  }
  return step;
}

LayerCase random_case(const Json& strategy, const std::vector<LayerStep>& steps) {
  LayerCase c;
  c.strategy = resolved_strategy(strategy);
  c.weight = at::tensor({0.5, 1.0, 2.0}, at::kDouble);
  c.bias = at::tensor({1.0, 0.0, -1.0}, at::kDouble);
  c.steps = steps;
  return c;
}

LayerCase conv_case(const Json& strategy) {
  at::manual_seed(5);
  LayerCase c;
  c.strategy = resolved_strategy(strategy);
  c.conv = LayerConv{at::randn({2, 3, 2, 2}, at::kDouble), {}, at::tensor({0.5, -1.0}, at::kDouble), 1, 0};
  LayerStep step;
  for (int t = 0; t < 2; ++t) {
    step.inputs.push_back(at::randn({2, 3, 4, 4}, at::kDouble));
    step.gradients.push_back(at::randn({2, 2, 3, 3}, at::kDouble));
  }
  c.steps = {step};
  return c;
}

// The message, and the key that it belongs to.
std::pair<std::string, std::string> refusal(const LayerCase& c, int ranks = 1) {
  std::string key;
  try {
    apply_layer(c, ranks, at::kCPU, &key);
  } catch (const Error& error) {
    return {key, error.what()};
  }
  return {};
}

TEST(LayerCase, RanksChangeNothingButWhatEachSends) {
  at::manual_seed(3);
  const LayerCase c = random_case("sync", {random_step({2, 0, 3, 1}), random_step({1, 2, 0, 3}),
                                           random_step({2, 2, 2, 2}, Mode::evaluate_saved)});
  const LayerAnswer one = apply_layer(c);
  for (const int ranks : {2, 4}) {
    const LayerAnswer more = apply_layer(c, ranks);
    EXPECT_EQ(compare(c, one, more).failure, "");
    for (size_t s = 0; s < 3; ++s) {
      const LayerStepAnswer &a = one.steps[s], &b = more.steps[s];
      ASSERT_EQ(a.collectives.size(), b.collectives.size());
      for (size_t i = 0; i < a.collectives.size(); ++i) {
        EXPECT_EQ(a.collectives[i].op, b.collectives[i].op);
        EXPECT_EQ(a.collectives[i].elements, ranks * b.collectives[i].elements);
      }
    }
  }
}

TEST(LayerCase, ListsTheCollectivesOfTheStepItself) {
  at::manual_seed(3);
  const LayerAnswer answer =
      apply_layer(random_case("sync", {random_step({2, 3}), random_step({2, 3}, Mode::evaluate_saved)}));
  const std::vector<Collective>& step = answer.steps[0].collectives;
  ASSERT_EQ(step.size(), 2u);
  EXPECT_EQ(step[0].op, "all_gather");
  EXPECT_EQ(step[0].elements, 2 * (1 + 2 * 3));  // count, means and sums of squares of two towers
  EXPECT_EQ(step[1].elements, 2 * 2 * 3);        // two sums
  EXPECT_EQ(step[0].purpose, Purpose::statistics);
  EXPECT_TRUE(answer.steps[1].collectives.empty());
  // Merging the ranks' pairs prepares the answer; it is no part of the step.
  EXPECT_TRUE(apply_layer(random_case("averaged", {random_step({2, 3})}), 2).steps[0].collectives.empty());
}

TEST(LayerCase, AMissingGradientCountsAsZero) {
  at::manual_seed(3);
  LayerCase c = random_case("sync", {random_step({2, 3})});
  c.steps[0].gradients[0] = at::Tensor();
  LayerCase zero = c;
  zero.steps[0].gradients[0] = at::zeros({2, 3, 2}, at::kDouble);
  const LayerStepAnswer a = apply_layer(c, 2).steps[0], b = apply_layer(zero, 2).steps[0];
  EXPECT_TRUE(at::equal(at::cat(a.input_gradients), at::cat(b.input_gradients)));
  EXPECT_GT(a.input_gradients[0].abs().sum().item<double>(), 0);
  c.steps[0].gradients.clear();
  const LayerStepAnswer none = apply_layer(c).steps[0];
  EXPECT_TRUE(none.input_gradients.empty());
  EXPECT_FALSE(none.weight_gradient.defined());
}

TEST(LayerCase, EvaluationUsesWhatWasRememberedAndHasGradientsToo) {
  at::manual_seed(3);
  const LayerAnswer answer =
      apply_layer(random_case("sync", {random_step({4, 4}), random_step({1, 2}, Mode::evaluate_saved)}));
  const LayerStepAnswer &trained = answer.steps[0], &evaluated = answer.steps[1];
  EXPECT_TRUE(at::equal(evaluated.running_var, trained.running_var));
  at::manual_seed(3);
  random_step({4, 4});
  const LayerStep step = random_step({1, 2});
  const at::Tensor x = at::cat(step.inputs).requires_grad_(true);
  const at::Tensor y =
      at::batch_norm(x, at::tensor({0.5, 1.0, 2.0}, at::kDouble), at::tensor({1.0, 0.0, -1.0}, at::kDouble),
                     trained.running_mean, trained.running_var, false, 0.1, 1e-5, false);
  y.backward(at::cat(step.gradients));
  EXPECT_LT(relative_error(at::cat(evaluated.outputs), y), 1e-12);
  EXPECT_LT(relative_error(at::cat(evaluated.input_gradients), x.grad()), 1e-12);
}

TEST(LayerCase, StepsWithoutAnySampleWork) {
  for (const char* strategy : {"sync", "per_tower", "layer_norm", "none"}) {
    LayerCase c = random_case(strategy, {random_step({0, 0}), random_step({0, 0}, Mode::evaluate_saved)});
    if (std::string(strategy) == "none") c.weight = c.bias = at::Tensor();
    for (const int ranks : {1, 2}) {
      const LayerAnswer answer = apply_layer(c, ranks);
      EXPECT_EQ(answer.steps[0].outputs[1].sizes(), (at::IntArrayRef{0, 3, 2})) << strategy;
      EXPECT_EQ(answer.steps[1].input_gradients[1].sizes(), (at::IntArrayRef{0, 3, 2})) << strategy;
    }
  }
}

TEST(LayerCase, AConvolutionIsAnsweredWithItsDirectionAndGain) {
  const LayerCase c = conv_case({{"name", "weight_norm"}, {"init", "none"}});
  const LayerStepAnswer answer = apply_layer(c, 2).steps[0];
  const at::Tensor norm = c.conv->v.flatten(1).norm(2, 1);
  EXPECT_LT(relative_error(answer.gain, norm), 1e-12) << "without one given";
  EXPECT_TRUE(at::equal(answer.bias, c.conv->bias));
  // With gain = norm(v) the weight is v itself.
  EXPECT_LT(relative_error(answer.outputs[1], at::conv2d(c.steps[0].inputs[1], c.conv->v, c.conv->bias)),
            1e-12);
  const at::Tensor sums = at::cat(c.steps[0].gradients).sum({0, 2, 3});
  EXPECT_LT(relative_error(answer.bias_gradient, sums), 1e-12);
  EXPECT_EQ(answer.v_gradient.sizes(), c.conv->v.sizes());
  EXPECT_EQ(answer.gain_gradient.sizes(), norm.sizes());
}

TEST(LayerCase, InitialisationFromDataOverwritesTheGivenBias) {
  const LayerCase c = conv_case("weight_norm");
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  EXPECT_FALSE(at::equal(answer.bias, c.conv->bias));
  const at::Tensor y = at::cat(answer.outputs);
  EXPECT_LT(y.mean({0, 2, 3}).abs().max().item<double>(), 1e-12);
  EXPECT_LT(relative_error(y.var({0, 2, 3}, /*unbiased=*/false), at::ones({2}, at::kDouble)), 1e-12);
}

// By those of its own, a rank of one value per image would refuse the other's single image, or wait for it.
TEST(LayerCase, RanksCountTheValuesOfOthersByTheirImages) {
  at::manual_seed(3);
  const auto rows = [](const at::Tensor& x) { return x.movedim(1, -1).reshape({-1, 3}); };
  LayerStep images, values;
  for (const int64_t width : {4, 1}) {
    images.inputs.push_back(at::randn({width == 4 ? 1 : 2, 3, width}, at::kDouble));
    values.inputs.push_back(rows(images.inputs.back()));
  }
  for (const char* text : {R"("per_tower")", R"("every_tower")", R"("averaged")", R"("sync")", R"("mabn")",
                           R"({"name": "batch_renorm", "schedule": null})"}) {
    const LayerStepAnswer answer = apply_layer(random_case(Json::parse(text), {images}), 2).steps[0];
    const LayerStepAnswer expected = apply_layer(random_case(Json::parse(text), {values})).steps[0];
    for (size_t t = 0; t < 2; ++t)
      EXPECT_LT(relative_error(rows(answer.outputs[t]), expected.outputs[t]), 1e-12) << text;
    EXPECT_LT(relative_error(answer.running_var, expected.running_var), 1e-12) << text;
  }
  images.inputs[1] = at::randn({0, 3, 1}, at::kDouble);
  EXPECT_EQ(refusal(random_case("sync", {images}), 2).second, "");
  EXPECT_EQ(refusal(random_case("instance_norm", {images}), 2).second, "");
  images.inputs = {at::randn({1, 3, 1}, at::kDouble), at::randn({0, 3, 4}, at::kDouble)};
  EXPECT_NE(refusal(random_case("sync", {images}), 2).second.find("more than 1 value per channel"),
            std::string::npos);
}

TEST(LayerCase, RefusalsNameTheKey) {
  at::manual_seed(3);
  const LayerStep step = random_step({2, 1});
  LayerStep one_value = step;
  one_value.inputs[1] = at::randn({1, 3, 1}, at::kDouble);
  one_value.gradients.clear();
  LayerCase c = random_case("sync", {step});
  EXPECT_EQ(refusal(c, 3).first, "steps[0].towers");

  c.steps.push_back(one_value);
  EXPECT_EQ(refusal(c).first, "steps[1].towers[1].input.shape") << "towers of one rank must agree";
  c.strategy = resolved_strategy("per_tower");
  EXPECT_EQ(refusal(c, 2).first, "steps[1].towers");
  EXPECT_NE(refusal(c, 2).second.find("more than 1 value per channel"), std::string::npos);

  c = random_case({{"name", "sync"}, {"affine", false}}, {step});
  EXPECT_EQ(refusal(c).first, "weight");
  c = random_case({{"name", "sync"}, {"group_size", 3}}, {step});
  EXPECT_EQ(refusal(c).first, "strategy") << "groups of 3 do not divide 2 towers";
  c = random_case("group_norm", {step});
  EXPECT_EQ(refusal(c).first, "strategy") << "8 groups do not divide 3 channels";
  c = random_case("layer_norm", {step});
  c.running_var = at::ones({3}, at::kDouble);
  EXPECT_EQ(refusal(c).first, "running_var");
  c = random_case("weight_norm", {step});
  EXPECT_EQ(refusal(c).first, "conv");
  EXPECT_EQ(refusal(conv_case("sync")).first, "conv");
}

}  // namespace
}  // namespace bnlab
