// weight_standardisation: which convolutions it standardises, by the formula of the paper and by that of its
// public code, and what it stands on.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/counting_communicator.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/strategy.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/comparison.hpp"

namespace bnlab {
namespace {

class WeightStandardisation : public ::testing::Test {
 protected:
  std::unique_ptr<Strategy> made(const Json& more) {
    Json strategy = {{"name", "weight_standardisation"}, {"base", {{"name", "group_norm"}, {"groups", 2}}}};
    strategy.update(more);
    return Registered<Strategy>::create(
        resolved_strategy(strategy),
        {.statistics = communicator_, .host = communicator_, .dtype = at::kDouble});
  }

  // The weight that the convolution's answer to a single 1 shows.
  static at::Tensor weight_in_force(Layer& conv, const ConvSite& site) {
    Pass pass;
    pass.towers = Towers({site.in * 9}, 1, 0);
    const at::Tensor one_hot = at::eye(site.in * 9, at::kDouble).view({-1, site.in, 3, 3});
    return conv.forward(one_hot, {}, pass).view({site.in * 9, site.out}).t();  // [out, in * 9]
  }

  Ledger ledger_;
  CountingCommunicator communicator_{1, ledger_};
  const ConvSite site_{.name = "conv", .in = 4, .out = 6, .padding = 0};
};

TEST_F(WeightStandardisation, ByThePaperEpsIsUnderTheRootAndByTheCodeBesideTheUnbiasedDeviation) {
  const at::Tensor v = initial_weights(site_, 0).flatten(1), mean = v.mean(1, true);
  const at::Tensor paper = (v - mean) / (v.var(1, /*unbiased=*/false, true) + 0.01).sqrt();
  const at::Tensor code = (v - mean) / (v.std(1, /*unbiased=*/true, true) + 0.01);
  EXPECT_LT(relative_error(weight_in_force(*made({{"eps", 0.01}})->conv(site_), site_), paper), 1e-12);
  EXPECT_LT(
      relative_error(weight_in_force(*made({{"eps", 0.01}, {"form", "code"}})->conv(site_), site_), code),
      1e-12);
}

TEST_F(WeightStandardisation, WeightsThatAreChannelsLastComeToTheSame) {
  const auto conv = made(Json::object())->conv(site_);
  const at::Tensor contiguous = weight_in_force(*conv, site_);
  at::Tensor weight = conv->named_parameters()["weight"];
  weight.set_data(weight.detach().contiguous(at::MemoryFormat::ChannelsLast));
  ASSERT_FALSE(weight.is_contiguous());
  EXPECT_LT(relative_error(weight_in_force(*conv, site_), contiguous), 1e-12);
}

TEST_F(WeightStandardisation, AConvolutionThatNoNormFollowsIsLeftAlone) {
  ConvSite head = site_;
  head.norm_follows = false;
  const at::Tensor v = initial_weights(head, 0).flatten(1);
  EXPECT_LT(relative_error(weight_in_force(*made(Json::object())->conv(head), head), v), 1e-12);
}

TEST_F(WeightStandardisation, ItNeedsABaseThatLeavesConvolutionsAsTheyAre) {
  const Json frozen_mabn = {{"name", "frozen"}, {"base", "mabn"}};
  const auto refusal = [](const Json& base) -> std::string {
    try {
      refuse_misfits("strategy", resolved_strategy({{"name", "weight_standardisation"}, {"base", base}}), {});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  for (const Json& base :
       {Json("none"), Json("weight_norm"), Json("weight_standardisation"), Json("mabn"), frozen_mabn}) {
    EXPECT_NE(refusal(base).find("expected a strategy that leaves convolutions as they are"),
              std::string::npos)
        << base << ": " << refusal(base);
  }
  EXPECT_EQ(refusal({{"name", "mabn"}, {"centred_weights", false}}), "");
}

}  // namespace
}  // namespace bnlab
