// Layers against LibTorch's own batch_norm and group_norm, in float64, and against finite differences.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cmath>

#include "harness/error.hpp"
#include "harness/layer/layer_case.hpp"
#include "tests/strategies/relative_error.hpp"

namespace bnlab {
namespace {

// One step of float64 arithmetic on some hundred values: a few hundred roundings of 1e-16.
constexpr double kExact = 1e-12;

struct Reference {
  at::Tensor y, dx, dweight, dbias, running_mean, running_var;
};

Reference batch_norm(const at::Tensor& x, const at::Tensor& dy, const at::Tensor& weight,
                     const at::Tensor& bias) {
  Reference r;
  r.running_mean = at::zeros_like(weight);
  r.running_var = at::ones_like(weight);
  const at::Tensor xg = x.detach().clone().requires_grad_(true);
  const at::Tensor w = weight.clone().requires_grad_(true), b = bias.clone().requires_grad_(true);
  r.y = at::batch_norm(xg, w, b, r.running_mean, r.running_var, true, 0.1, 1e-5, false);
  r.y.backward(dy);
  r.dx = xg.grad();
  r.dweight = w.grad();
  r.dbias = b.grad();
  return r;
}

LayerCase random_case(const Json& strategy, const std::vector<int64_t>& sizes, at::IntArrayRef rest,
                      at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  at::manual_seed(7);
  LayerCase c;
  c.strategy = resolved_strategy(strategy);
  c.memory_format = format;
  LayerStep step;
  const auto options = at::TensorOptions(at::kDouble);
  for (size_t t = 0; t < sizes.size(); ++t) {
    std::vector<int64_t> shape{sizes[t]};
    shape.insert(shape.end(), rest.begin(), rest.end());
    // towers with different means: the spread between them counts
    step.inputs.push_back((at::randn(shape, options) * 2 + static_cast<double>(t)).contiguous(format));
    step.gradients.push_back(at::randn(shape, options).contiguous(format));
  }
  c.steps = {step};
  c.weight = at::rand({rest[0]}, options) + 0.5;
  c.bias = at::randn({rest[0]}, options);
  return c;
}

Reference whole_batch(const LayerCase& c) {
  return batch_norm(at::cat(c.steps[0].inputs), at::cat(c.steps[0].gradients), c.weight, c.bias);
}

// The answer to the last step.
LayerStepAnswer apply(const LayerCase& c) {
  return apply_layer(c).steps.back();
}

void expect_equal(const LayerStepAnswer& answer, const Reference& r, double tolerance = kExact) {
  EXPECT_LT(relative_error(at::cat(answer.outputs), r.y), tolerance);
  EXPECT_LT(relative_error(at::cat(answer.input_gradients), r.dx), tolerance);
  EXPECT_LT(relative_error(answer.weight_gradient, r.dweight), tolerance);
  EXPECT_LT(relative_error(answer.bias_gradient, r.dbias), tolerance);
  EXPECT_LT(relative_error(answer.running_mean, r.running_mean), tolerance);
  EXPECT_LT(relative_error(answer.running_var, r.running_var), tolerance);
}

const std::vector<std::vector<int64_t>> kShapes{{5}, {5, 7}, {16, 3, 4}, {3, 2, 3, 4}};

TEST(Sync, EqualsBatchNormOverTheWholeBatch) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {8}, {2, 2, 2, 2}, {2, 3, 4, 5}, {0, 4, 0, 1}, {4, 0}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    for (const auto& rest : kShapes) {
      const LayerCase c = random_case("sync", sizes, rest);
      expect_equal(apply(c), whole_batch(c));
    }
  }
}

TEST(Sync, EqualsBatchNormInChannelsLastToo) {
  const LayerCase c = random_case("sync", {2, 1, 3}, {6, 5, 4}, at::MemoryFormat::ChannelsLast);
  const LayerStepAnswer answer = apply(c);
  EXPECT_TRUE(answer.outputs.back().is_contiguous(at::MemoryFormat::ChannelsLast));
  expect_equal(answer, whole_batch(c));
}

TEST(Sync, InGroupsEqualsBatchNormOverEachGroup) {
  const LayerCase c = random_case({{"name", "sync"}, {"group_size", 2}}, {2, 3, 1, 2}, {4, 3, 3});
  const LayerStepAnswer answer = apply(c);
  at::Tensor mean = at::zeros_like(c.weight);
  for (const size_t g : {0, 2}) {
    const Reference r =
        batch_norm(at::cat({c.steps[0].inputs[g], c.steps[0].inputs[g + 1]}),
                   at::cat({c.steps[0].gradients[g], c.steps[0].gradients[g + 1]}), c.weight, c.bias);
    EXPECT_LT(relative_error(at::cat({answer.outputs[g], answer.outputs[g + 1]}), r.y), kExact);
    EXPECT_LT(relative_error(at::cat({answer.input_gradients[g], answer.input_gradients[g + 1]}), r.dx),
              kExact);
    mean += r.running_mean / 2;  // one pair, updated with the mean over the groups
  }
  EXPECT_LT(relative_error(answer.running_mean, mean), kExact);
}

TEST(PerTower, WithOneTowerEqualsBatchNorm) {
  for (const auto& rest : kShapes) {
    const LayerCase c = random_case("per_tower", {6}, rest);
    expect_equal(apply(c), whole_batch(c));
  }
}

TEST(PerTower, EqualsBatchNormOfEachTower) {
  const LayerCase c = random_case("per_tower", {2, 0, 5, 3}, {4, 3, 2});
  const LayerStepAnswer answer = apply(c);
  at::Tensor dweight = at::zeros_like(c.weight);
  for (const size_t t : {0, 2, 3}) {
    const Reference r = batch_norm(c.steps[0].inputs[t], c.steps[0].gradients[t], c.weight, c.bias);
    EXPECT_LT(relative_error(answer.outputs[t], r.y), kExact);
    EXPECT_LT(relative_error(answer.input_gradients[t], r.dx), kExact);
    dweight += r.dweight;
  }
  EXPECT_LT(relative_error(answer.weight_gradient, dweight), kExact);
  EXPECT_EQ(answer.outputs[1].numel(), 0);
}

TEST(GroupNorm, EqualsLibTorchs) {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const LayerCase c = random_case({{"name", "group_norm"}, {"groups", 4}}, {2, 3}, {8, 5, 3}, format);
    const LayerStepAnswer answer = apply(c);
    const at::Tensor x = at::cat(c.steps[0].inputs).requires_grad_(true);
    const at::Tensor w = c.weight.clone().requires_grad_(true), b = c.bias.clone().requires_grad_(true);
    const at::Tensor y = at::group_norm(x, 4, w, b, 1e-5);
    y.backward(at::cat(c.steps[0].gradients));
    EXPECT_LT(relative_error(at::cat(answer.outputs), y), kExact);
    EXPECT_LT(relative_error(at::cat(answer.input_gradients), x.grad()), kExact);
    EXPECT_LT(relative_error(answer.weight_gradient, w.grad()), kExact);
    EXPECT_LT(relative_error(answer.bias_gradient, b.grad()), kExact);
  }
}

// The loss sum(y c) has the gradient c; central differences with a step of 1e-6 are good to about 1e-9.
TEST(Gradients, EqualFiniteDifferences) {
  const std::vector<Json> strategies{"per_tower",
                                     "sync",
                                     {{"name", "sync"}, {"group_size", 2}},
                                     {{"name", "sync"}, {"variance", "averaged"}},
                                     {{"name", "group_norm"}, {"groups", 2}}};
  for (const Json& strategy : strategies) {
    SCOPED_TRACE(strategy.dump());
    LayerCase c = random_case(strategy, {2, 3, 1, 2}, {4, 2, 2});
    c.activation = Activation::relu;
    const LayerStepAnswer answer = apply(c);
    const auto loss = [&] {
      LayerCase forward_only = c;
      forward_only.steps[0].gradients.clear();
      return (at::cat(apply(forward_only).outputs) * at::cat(c.steps[0].gradients)).sum().item<double>();
    };
    constexpr double kStep = 1e-6;
    for (size_t t = 0; t < c.steps[0].inputs.size(); ++t) {
      double* x = c.steps[0].inputs[t].mutable_data_ptr<double>();
      for (int64_t i = 0; i < c.steps[0].inputs[t].numel(); i += 3) {
        const double before = x[i];
        x[i] = before + kStep;
        const double above = loss();
        x[i] = before - kStep;
        const double below = loss();
        x[i] = before;
        const double expected = answer.input_gradients[t].contiguous().view(-1)[i].item<double>();
        EXPECT_NEAR((above - below) / (2 * kStep), expected, 1e-7) << "tower " << t << ", value " << i;
      }
    }
  }
}

TEST(EdgeCases, OneValuePerChannelIsRefusedByTheSetThatNormalises) {
  const auto message = [](const Json& strategy, const std::vector<int64_t>& sizes) -> std::string {
    try {
      apply_layer(random_case(strategy, sizes, {4}));
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

TEST(EdgeCases, TowersThatDoNotFitTheRulesAreRefused) {
  EXPECT_THROW(apply_layer(random_case({{"name", "per_tower"}, {"saved_tower", 2}}, {3, 3}, {4})), Error);
  EXPECT_THROW(apply_layer(random_case({{"name", "sync"}, {"group_size", 2}}, {3, 3, 3}, {4})), Error);
}

TEST(EdgeCases, AllTowersEmptyLeaveTheRunningStatisticsUnchanged) {
  for (const char* strategy : {"per_tower", "averaged", "sync"}) {
    LayerCase c = random_case(strategy, {0, 0}, {3, 2, 2});
    c.running_mean = at::tensor({0.25, -1.0, 3.0}, at::kDouble);
    c.running_var = at::tensor({2.0, 0.5, 1.0}, at::kDouble);
    const LayerStepAnswer answer = apply(c);
    EXPECT_TRUE(at::equal(answer.running_mean, c.running_mean)) << strategy;
    EXPECT_TRUE(at::equal(answer.running_var, c.running_var)) << strategy;
    EXPECT_EQ(answer.weight_gradient.abs().sum().item<double>(), 0);
  }
}

TEST(EdgeCases, ANonFiniteChannelIsCountedAndNotRemembered) {
  for (const char* strategy : {"per_tower", "averaged", "sync"}) {
    LayerCase c = random_case(strategy, {3, 3}, {2, 2, 2});
    c.steps[0].gradients.clear();
    c.steps[0].inputs[0].select(1, 1)[0][0][0] = std::nan("");
    const LayerAnswer all = apply_layer(c);
    EXPECT_EQ(all.nonfinite_channels, 1) << strategy;
    const LayerStepAnswer& answer = all.steps[0];
    EXPECT_EQ(answer.running_mean[1].item<double>(), 0) << strategy;
    EXPECT_EQ(answer.running_var[1].item<double>(), 1) << strategy;
    EXPECT_NE(answer.running_mean[0].item<double>(), 0) << strategy;
  }
}

TEST(Momentum, NullIsTheCumulativeAverage) {
  LayerCase c = random_case({{"name", "sync"}, {"momentum", nullptr}}, {3, 3}, {4});
  c.steps.assign(3, c.steps[0]);  // the same batch three times: the average is the batch's own moments
  const LayerStepAnswer answer = apply(c);
  const at::Tensor x = at::cat(c.steps[0].inputs);
  EXPECT_LT(relative_error(answer.running_mean, x.mean(0)), kExact);
  EXPECT_LT(relative_error(answer.running_var, x.var(0, /*unbiased=*/true)), kExact);
}

TEST(Evaluation, UsesTheSavedPairAndChangesNothing) {
  for (const char* strategy : {"per_tower", "averaged", "sync"}) {
    LayerCase c = random_case(strategy, {3, 1}, {3, 2, 2});
    c.steps[0].mode = Mode::evaluate_saved;
    c.running_mean = at::tensor({0.25, -1.0, 3.0}, at::kDouble);
    c.running_var = at::tensor({2.0, 0.5, 1.0}, at::kDouble);
    const LayerStepAnswer answer = apply(c);
    const at::Tensor expected = at::batch_norm(at::cat(c.steps[0].inputs), c.weight, c.bias, c.running_mean,
                                               c.running_var, false, 0.1, 1e-5, false);
    EXPECT_LT(relative_error(at::cat(answer.outputs), expected), kExact);
    EXPECT_TRUE(at::equal(answer.running_mean, c.running_mean));
  }
}

TEST(Evaluation, UnderBatchStatisticsNormalisesAsInTrainingAndRemembersNothing) {
  LayerCase c = random_case("sync", {3, 2}, {3, 2, 2});
  const LayerStepAnswer trained = apply(c);
  c.steps[0].mode = Mode::evaluate_batch;
  const LayerStepAnswer answer = apply(c);
  EXPECT_TRUE(at::equal(at::cat(answer.outputs), at::cat(trained.outputs)));
  EXPECT_EQ(answer.running_mean.abs().sum().item<double>(), 0);
}

TEST(Precision, HalfAndBfloat16KeepTheirDtypeWithFloat32Statistics) {
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    LayerCase c = random_case("sync", {2, 2}, {4, 3, 3});
    const LayerStepAnswer exact = apply(c);
    c.dtype = dtype;
    const LayerStepAnswer answer = apply(c);
    EXPECT_EQ(answer.outputs[0].scalar_type(), dtype);
    EXPECT_EQ(answer.input_gradients[0].scalar_type(), dtype);
    EXPECT_EQ(answer.running_mean.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(at::cat(answer.outputs), at::cat(exact.outputs)),
              2e-2);  // bfloat16 keeps 8 bits
  }
}

}  // namespace
}  // namespace bnlab
