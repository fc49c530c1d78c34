// norm_batch: one global batch, cut into towers in many ways, is always normalised by the same sets; and what
// does not fit is refused by name.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/embed/bnlab/batch_norm.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

Json norm_batch(int64_t samples) {
  return {{"name", "norm_batch"}, {"samples", samples}};
}

TEST(NormBatch, TheNumberOfTowersChangesNoNumber) {
  const std::vector<std::vector<int64_t>> of_24 = {{12, 12},
                                                   {8, 8, 8},
                                                   {6, 6, 6, 6},
                                                   {4, 4, 4, 4, 4, 4},
                                                   {12, 4, 2, 6},
                                                   {0, 24},
                                                   std::vector<int64_t>(12, 2),
                                                   std::vector<int64_t>(24, 1)};
  for (const int64_t samples : {2, 4, 6, 12, 24}) {
    const LayerCase one =
        make_case(norm_batch(samples), {.towers = {24}, .modes = std::vector<Mode>(3, Mode::train)});
    const LayerAnswer expected = apply_layer(one);
    int64_t compared = 0;
    for (const auto& sizes : of_24) {
      const LayerCase many = dealt(one, sizes);
      const CaseOutcome outcome = outcome_of([&] { return apply_layer(many); });
      if (!outcome.refusal.empty()) {
        EXPECT_NE(outcome.refusal.find("samples"), std::string::npos) << outcome.refusal;
        continue;
      }
      SCOPED_TRACE(std::to_string(samples) + " samples, " + std::to_string(sizes.size()) + " towers");
      EXPECT_EQ(outcome.failure, "");
      ++compared;
      for (size_t s = 0; s < one.steps.size(); ++s) {
        const LayerStepAnswer &a = outcome.answer.steps[s], &b = expected.steps[s];
        EXPECT_LT(relative_error(at::cat(a.outputs), b.outputs.front()), 1e-12);
        EXPECT_LT(relative_error(at::cat(a.input_gradients), b.input_gradients.front()), 1e-12);
        EXPECT_LT(relative_error(a.weight_gradient, b.weight_gradient), 1e-12);
        EXPECT_LT(relative_error(a.running_mean, b.running_mean), 1e-12);
        EXPECT_LT(relative_error(a.running_var, b.running_var), 1e-12);
      }
    }
    EXPECT_GE(compared, 5) << samples;
  }
}

TEST(NormBatch, ExchangesOnlyWhereASetSpansTowers) {
  const auto collectives = [](int64_t samples) {
    return apply_layer(make_case(norm_batch(samples), {.towers = {4, 4, 4, 4}}), 2)
        .steps[0]
        .collectives.size();
  };
  EXPECT_EQ(collectives(2), 0u);
  EXPECT_EQ(collectives(4), 0u);
  EXPECT_EQ(collectives(8), 2u);
  EXPECT_EQ(collectives(16), 2u);
}

std::string refusal(int64_t samples, const std::vector<int64_t>& towers) {
  return outcome_of([&] { return apply_layer(make_case(norm_batch(samples), {.towers = towers})); }).refusal;
}

TEST(NormBatch, WhatDoesNotFitIsRefusedByName) {
  EXPECT_EQ(refusal(4, {4, 4}), "");
  const std::string neither = refusal(3, {4, 4});
  EXPECT_NE(neither.find("samples: expected a divisor of every tower's samples, or the samples of groups"),
            std::string::npos)
      << neither;
  EXPECT_NE(neither.find("got 3 for towers of 4, 4 samples"), std::string::npos) << neither;
  EXPECT_NE(refusal(8, {4, 4, 4}), "");        // the third tower has no neighbour
  EXPECT_NE(refusal(16, {4, 4}), "");          // more than there are
  EXPECT_NE(refusal(6, {2, 4, 3, 3, 6}), "");  // groups of as many towers each
}

// Sets are laid out for the sizes of the first batch; another batch that would need others is no surprise.
TEST(NormBatch, AnotherBatchThanTheFirstMustFitTheSameSets) {
  LayerCase c = make_case(norm_batch(4), {.towers = {2, 2}, .modes = {Mode::train, Mode::train}});
  c.steps[1] = make_case(norm_batch(4), {.towers = {4, 4}}).steps[0];
  const std::string message = outcome_of([&] { return apply_layer(c); }).refusal;
  EXPECT_NE(message.find("expected 4 samples in every set"), std::string::npos) << message;
}

// Layers of other programs are made before a batch is seen: they cut towers.
TEST(NormBatch, InOtherProgramsItCutsTowers) {
  BatchNorm layer(BatchNormOptions(3).strategy(R"({"name": "norm_batch", "samples": 2})").towers_per_rank(2));
  EXPECT_NO_THROW(layer->forward(at::randn({8, 3, 2, 2})));
  EXPECT_THROW(layer->forward(at::randn({2, 3, 2, 2})), Error);
}

}  // namespace
}  // namespace bnlab
