// Runs that a strategy would refuse at a norm site, told before they start.
#include "harness/counting/single_values.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/models/one_rank_network.hpp"
#include "tests/models/small_models.hpp"

namespace bnlab {
namespace {

RunSpec run_of(const Json& model, const std::array<int64_t, 2>& size, const Json& strategy = "per_tower",
               std::vector<int64_t> samples = {1, 1}) {
  RunSpec run;
  run.task = resolved_component("task", {{"name", "shapes"}, {"size", size}});
  run.model = resolved_component("model", model);
  run.strategy = resolved_component("strategy", strategy);
  run.samples_per_tower = std::move(samples);
  return run;
}

const Json kPspNet = {{"name", "pspnet"}, {"backbone", {{"name", "resnet"}, {"width", 2}}}};

TEST(SingleValues, OneImagePerTowerIsToldWithItsCures) {
  const std::string said =
      "more than 1 value per channel is needed to normalise (site ppm.features.0.2, strategy ";
  EXPECT_EQ(single_value_refusal(run_of(kPspNet, {33, 41})),
            said + "per_tower, set of 1); use `sync`, two images per tower, or \"norm_at_bin_1\": false");
  EXPECT_EQ(single_value_refusal(run_of(kPspNet, {33, 41}, "instance_norm", {4})),
            said + "instance_norm, set of 1); use \"norm_at_bin_1\": false");
  RunSpec in_passes = run_of(kPspNet, {33, 41}, "per_tower", {2, 2});
  EXPECT_EQ(single_value_refusal(in_passes), "");
  in_passes.accumulate = 2;
  EXPECT_NE(single_value_refusal(in_passes).find("two images per tower and pass"), std::string::npos);
}

TEST(SingleValues, EachCureHelps) {
  EXPECT_EQ(single_value_refusal(run_of(kPspNet, {33, 41}, "sync")), "");
  EXPECT_EQ(single_value_refusal(run_of(kPspNet, {33, 41}, "per_tower", {2, 2})), "");
  Json without = kPspNet;
  without["norm_at_bin_1"] = false;
  EXPECT_EQ(single_value_refusal(run_of(without, {33, 41})), "");
}

TEST(SingleValues, IsWhatAStepOfEachModelSays) {
  for (const auto& [name, small] : small_models()) {
    if (small.rows_per_sample > 1) continue;
    for (const auto& size : {small.image_size, std::array<int64_t, 2>{32, 32}}) {
      std::string said;
      try {
        OneRankNetwork(small.model).forward(at::rand({1, 3, size[0], size[1]}, at::kDouble));
      } catch (const Error& error) {
        said = error.what();
      }
      const std::string told = single_value_refusal(run_of(small.model, size, "per_tower", {1}));
      EXPECT_EQ(told.substr(0, told.find("; use")), said) << name;
    }
  }
}

}  // namespace
}  // namespace bnlab
