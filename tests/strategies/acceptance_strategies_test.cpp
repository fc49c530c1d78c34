// Acceptance cases of the strategies beside sync: renormalisation, weight norm, shuffling, precise
// statistics, frozen layers, against formulas written out here. acceptance_test.cpp has the others.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/thread_ranks.hpp"
#include "tests/strategies/case_for.hpp"
#include "tests/strategies/one_site.hpp"
#include "tests/strategies/plain_batch_norm.hpp"

namespace bnlab {
namespace {

constexpr double kExact = 1e-12;

at::Tensor standardised(const at::Tensor& x) {
  const at::Tensor mean = rows(x).mean(1), var = rows(x).var(1, /*unbiased=*/false);
  return (x - by_channel(mean, x)) / by_channel((var + 1e-5).sqrt(), x);
}

LayerCase make_case(const Json& strategy, const CaseShape& shape) {
  return case_for(resolved_strategy(strategy), shape);
}

const std::vector<std::string> kNone;

TEST(Acceptance, RenormalisationWithoutRoomIsBatchNormAndWithoutLimitsTheRunningStatistics) {
  const auto renorm = [](double r_max, double d_max) {
    return Json{{"name", "batch_renorm"},
                {"r_max", r_max},
                {"d_max", d_max},
                {"schedule", nullptr},
                {"scope", "pooled"}};
  };
  const LayerCase none = make_case(renorm(1, 0), {{3, 2}, {4, 2, 3}});
  EXPECT_EQ(differences(joined(apply_layer(none)), plain_batch_norm(none), kExact), kNone);
  const LayerCase free = make_case(renorm(1e9, 1e9), {{3, 2}, {4, 2, 3}});
  LayerCase evaluation = free;
  evaluation.steps[0].mode = Mode::evaluate_saved;
  EXPECT_LT(deviation(at::cat(apply_layer(free).steps[0].outputs),
                      at::cat(apply_layer(evaluation).steps[0].outputs)),
            kExact);
}

// Running statistics far from the batch, which hardly move, clip both corrections.
TEST(Acceptance, TheLimitsOfRenormalisationRiseLinearlyBetweenTheirSteps) {
  const Json schedule{{"start_step", 1}, {"end_step", 3}};
  LayerCase c = make_case(
      {{"name", "batch_renorm"}, {"r_max", 3}, {"d_max", 5}, {"momentum", 1e-12}, {"schedule", schedule}},
      {{4, 3}, {4, 2, 3}, std::vector<Mode>(5)});
  c.running_mean.fill_(-100);
  c.running_var.fill_(1e-2);
  const LayerAnswer answer = apply_layer(c);
  const std::vector<std::pair<double, double>> limits{{1, 0}, {1, 0}, {2, 2.5}, {3, 5}, {3, 5}};
  for (size_t k = 0; k < limits.size(); ++k) {
    const at::Tensor x = c.steps[k].inputs[0];
    const at::Tensor y = (standardised(x) * limits[k].first + limits[k].second) * by_channel(c.weight, x) +
                         by_channel(c.bias, x);
    EXPECT_LT(deviation(answer.steps[k].outputs[0], y), kExact) << "step " << k;
  }
}

TEST(Acceptance, InitialisedWeightNormHasUnitOutputsWhateverThePlacement) {
  const LayerCase c = make_case({{"name", "weight_norm"}, {"init_scale", 0.5}}, {{2, 3, 1, 4}});
  for (const int ranks : {1, 2, 4}) {
    const LayerStepAnswer answer = apply_layer(c, ranks).steps[0];
    const at::Tensor y = rows(at::cat(answer.outputs));
    EXPECT_LT(y.mean(1).abs().max().item<double>(), kExact);
    EXPECT_LT(deviation(y.std(1, /*unbiased=*/false), at::full({4}, 0.5, at::kDouble)), kExact);
    EXPECT_LT((answer.v_gradient * c.conv->v).flatten(1).sum(1).abs().max().item<double>(), 1e-11);
  }
}

TEST(Acceptance, MeanOnlyBatchNormCentresTheGradient) {
  const LayerCase c = make_case(
      {{"name", "weight_norm"}, {"init", "none"}, {"mean_only_bn", true}, {"scope", "pooled"}}, {{2, 3}});
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  const at::Tensor v = c.conv->v;
  const at::Tensor w = v * (c.conv->gain / v.flatten(1).norm(2, 1)).view({-1, 1, 1, 1});
  const at::Tensor x = at::cat(c.steps[0].inputs).requires_grad_(true), dy = at::cat(c.steps[0].gradients);
  at::conv2d(x, w, {}, 1, 1).backward(dy - by_channel(rows(dy).mean(1), dy));
  EXPECT_LT(deviation(at::cat(answer.input_gradients), x.grad()), kExact);
}

TEST(Acceptance, ShufflingIsBatchNormOfThePermutedSlicesPutBackInOrder) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{5, 0, 2, 1}, {1, 0, 1, 0}}) {
    const LayerCase c = make_case("shuffle", {sizes, {4, 2, 3}, {Mode::train, Mode::train}});
    for (const int ranks : {1, 2, 4}) {
      const LayerAnswer answer = apply_layer(c, ranks);
      EXPECT_NE(answer.steps[0].permutation.size(), 0u);
      for (size_t k = 0; k < 2; ++k) {
        const at::Tensor order = at::tensor(answer.steps[k].permutation, at::kLong);
        LayerCase slice = c;
        std::vector<at::Tensor> y, dx;
        const auto places = at::cat(c.steps[k].inputs).index_select(0, order).split_with_sizes(sizes);
        const auto gradients = at::cat(c.steps[k].gradients).index_select(0, order).split_with_sizes(sizes);
        for (size_t t = 0; t < sizes.size(); ++t) {
          if (sizes[t] > 0) {
            slice.steps = {{Mode::train, {places[t]}, {gradients[t]}}};
            const LayerStepAnswer expected = plain_batch_norm(slice).steps[0];
            y.push_back(expected.outputs[0]);
            dx.push_back(expected.input_gradients[0]);
            if (t == 0 && k == 0) {
              EXPECT_LT(deviation(answer.steps[0].running_mean, expected.running_mean), kExact);
            }
          }
        }
        const LayerStepAnswer& step = answer.steps[k];
        EXPECT_LT(deviation(at::cat(step.outputs).index_select(0, order), at::cat(y)), kExact);
        EXPECT_LT(deviation(at::cat(step.input_gradients).index_select(0, order), at::cat(dx)), kExact);
      }
    }
  }
}

TEST(Acceptance, PreciseStatisticsAreThoseOfAllValuesHoweverTheyAreSplit) {
  const CaseShape shape{{24}, {4, 2, 3}, {Mode::train, Mode::train}};
  for (const char* base : {"per_tower", "sync"}) {
    const LayerCase one = make_case({{"name", "precise"}, {"base", base}, {"batches", 2}}, shape);
    const at::Tensor all = rows(at::cat({one.steps[0].inputs[0], one.steps[1].inputs[0]}));
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{24}, {12, 12}, {5, 9, 0, 10}}) {
      const LayerCase c = dealt(one, sizes);
      for (const int ranks : {1, 2}) {
        if (sizes.size() % static_cast<size_t>(ranks) == 0) {
          const LayerStepAnswer answer = apply_layer(c, ranks).steps.back();
          EXPECT_LT(deviation(answer.running_mean, all.mean(1)), kExact) << base;
          EXPECT_LT(deviation(answer.running_var, all.var(1, true)), kExact) << base;
        }
      }
    }
  }
}

TEST(Acceptance, FrozenFromTheStartIsCloseToTheIdentityAndStaysSo) {
  LayerCase c = make_case("frozen", {{3, 2}, {4, 2, 3}, {Mode::train, Mode::train}});
  c.weight.reset();
  c.bias.reset();
  c.running_mean.reset();
  c.running_var.reset();
  const LayerAnswer answer = apply_layer(c);
  EXPECT_LT(deviation(at::cat(answer.steps[1].outputs), at::cat(c.steps[1].inputs)), 1e-5);
  EXPECT_TRUE(at::equal(answer.steps[1].running_mean, at::zeros({4}, at::kDouble)));
  EXPECT_TRUE(at::equal(answer.steps[1].running_var, at::ones({4}, at::kDouble)));
  EXPECT_TRUE(answer.steps[1].weight_gradient.defined());
}

TEST(Acceptance, FrozenTrainsWeightAndBiasOnlyIfAskedTo) {
  for (const bool train_affine : {false, true}) {
    const LayerCase c =
        make_case({{"name", "frozen"}, {"from_step", 3}, {"train_affine", train_affine}}, {{3, 2}});
    on_thread_ranks(1, at::kCPU, [&](World& world) {
      OneSite site(c, world);
      EXPECT_TRUE(site.strategy().trainable("site.weight", {2, 10}));
      EXPECT_EQ(site.strategy().trainable("site.weight", {3, 10}), train_affine);
      EXPECT_EQ(site.strategy().trainable("site.bias", {9, 10}), train_affine);
    });
  }
}

}  // namespace
}  // namespace bnlab
