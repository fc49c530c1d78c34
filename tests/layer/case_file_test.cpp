#include "harness/layer/layer_case.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/layer/example.hpp"

namespace bnlab {
namespace {

std::string refusal(const Json& document) {
  try {
    read_layer_case(document);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Json with(const std::string& pointer, const Json& value, const Json& strategy = "sync") {
  Json document = example_document(strategy);
  document[Json::json_pointer(pointer)] = value;
  return document;
}

Json without(const std::string& parent, const std::string& key) {
  Json document = example_document("sync");
  document[Json::json_pointer(parent)].erase(key);
  return document;
}

Json conv_document() {
  Json document = with("/conv", Json{{"v", {{"shape", {3, 2, 3, 3}}, {"data", std::vector<double>(54, 1)}}}},
                       "weight_norm");
  document.erase("weight");
  document.erase("bias");
  const Json image{{"shape", {1, 2, 5, 4}}, {"data", std::vector<double>(40, 1)}};
  document["steps"] = Json::array({Json{{"towers", Json::array({Json{{"input", image}}})}}});
  return document;
}

TEST(CaseFile, IsReadWithItsDefaults) {
  const LayerCase c = read_layer_case(example_document("sync"));
  EXPECT_EQ(c.strategy.at("eps"), 1e-5) << "the strategy's own defaults are filled in";
  EXPECT_EQ(c.dtype, at::kDouble);
  EXPECT_EQ(c.memory_format, at::MemoryFormat::Contiguous);
  EXPECT_EQ(c.towers(), 2u);
  EXPECT_EQ(c.steps[0].inputs[1].sizes(), (at::IntArrayRef{3, 1}));
  EXPECT_EQ(c.steps[0].inputs[1][1].item<double>(), 9);
  EXPECT_EQ(c.steps[0].gradients[0][1].item<double>(), -2);
  EXPECT_EQ(c.weight.item<double>(), 2);
  EXPECT_FALSE(c.running_mean.defined());
}

TEST(CaseFile, AStepWithoutAnyGradientHasNoBackwardPass) {
  Json document = example_document("sync");
  Json& towers = document["steps"][0]["towers"];
  towers[0].erase("grad_output");
  EXPECT_FALSE(read_layer_case(document).steps[0].gradients[0].defined()) << "counts as zero";
  towers[1].erase("grad_output");
  EXPECT_TRUE(read_layer_case(document).steps[0].gradients.empty());
}

TEST(CaseFile, StatisticsAreHeldInFloat32ButForFloat64) {
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    const LayerCase c = read_layer_case(with("/dtype", dtype));
    EXPECT_EQ(c.weight.scalar_type(), at::kFloat) << dtype;
    EXPECT_EQ(c.steps[0].inputs[0].scalar_type(), c.dtype) << dtype;
  }
  EXPECT_EQ(read_layer_case(example_document("sync")).weight.scalar_type(), at::kDouble);
}

TEST(CaseFile, ReadsAConvolution) {
  Json document = conv_document();
  document["conv"]["stride"] = 2;
  document["conv"]["padding"] = 1;
  // (5 + 2 - 3) / 2 + 1 by (4 + 2 - 3) / 2 + 1
  document["steps"][0]["towers"][0]["grad_output"] = {{"shape", {1, 3, 3, 2}},
                                                      {"data", std::vector<double>(18, 1)}};
  document["running_mean"] = {1, 2, 3};
  const LayerCase c = read_layer_case(document);
  EXPECT_EQ(c.conv->v.sizes(), (at::IntArrayRef{3, 2, 3, 3}));
  EXPECT_EQ(c.conv->stride, 2);
  EXPECT_FALSE(c.conv->gain.defined());
}

TEST(CaseFile, NamesTheKeyAtFault) {
  const std::string input = "/steps/0/towers/1/input", at = "steps[0].towers[1].input";
  const Json short_tower{{"shape", {1, 2}}, {"data", {1, 2}}};
  Json wide = conv_document();
  wide["conv"]["v"]["shape"] = {3, 2, 9, 1};
  Json kernel = conv_document();
  kernel["steps"][0]["towers"][0]["input"] = {{"shape", {1, 2, 2, 2}}, {"data", std::vector<double>(8, 1)}};
  Json beside = conv_document();
  beside["bias"] = {1, 2, 3};
  Json uneven = example_document("sync");
  uneven["steps"].push_back(uneven["steps"][0]);
  uneven["steps"][1]["towers"].erase(1);
  const std::vector<std::pair<Json, std::string>> cases{
      {with("/wieght", 1), "wieght: unknown key; did you mean \"weight\"?"},
      {with("/strategy", Json{{"name", "sync"}, {"epss", 1}}), "strategy.epss: unknown key of strategy"},
      {with("/strategy", Json{{"name", "sync"}, {"eps", 0}}), "strategy.eps: expected a number > 0, got 0"},
      {with("/strategy", "snyc"), "strategy: unknown strategy \"snyc\"; did you mean \"sync\"?"},
      {without("", "strategy"), "strategy: missing"},
      {with("/dtype", "float8"), "dtype: expected one of"},
      {with("/memory_format", "channels_last"), "memory_format: channels_last needs inputs of 4 or 5"},
      {with("/seed", -1), "seed: expected an integer in [0, "},
      {with("/weight", {1, 2}), "weight: expected an array of 1 numbers, one per channel, got 2 entries"},
      {with("/running_var", 1), "running_var: expected an array of 1 numbers"},
      {with("/bias", {"1"}), "bias[0]: expected a number, \"NaN\", "},
      {with("/steps", Json::array()), "steps: expected an array of at least one step"},
      {with("/steps/0/mode", "test"), "steps[0].mode: expected one of"},
      {with("/steps/0/towers", Json::array()), "steps[0].towers: expected an array of at least one tower"},
      {without("/steps/0/towers/0", "input"), "steps[0].towers[0].input: missing"},
      {with("/steps/0/towers/0/label", 1), "steps[0].towers[0].label: unknown key"},
      {with(input, Json::array({1})), at + ": expected an object"},
      {with(input + "/shape", {3}), at + ".shape: expected [n, C], "},
      {with(input + "/shape", {-3, 1}), at + ".shape[0]: expected an integer in"},
      {with(input + "/shape", {2, 1}), at + ".data: expected as many numbers as shape [2, 1] has, got 3"},
      {with(input + "/data/2", nullptr), at + ".data[2]: expected a number"},
      {with(input, short_tower), at + ".shape: expected 1 channels as in the first tower, got [1, 2]"},
      {with("/steps/0/towers/1/grad_output", short_tower),
       "steps[0].towers[1].grad_output.shape: expected the shape of the output, [3, 1], got [1, 2]"},
      {uneven, "steps[1].towers: expected 2 towers as in steps[0], got 1"},
      {wide, "conv.v.shape: expected [out, in, k, k], got [3, 2, 9, 1]"},
      {kernel, "steps[0].towers[0].input.shape: expected at least the size of the kernel, 3"},
      {beside, "bias: expected none beside conv"},
  };
  for (const auto& [document, expected] : cases)
    EXPECT_EQ(refusal(document).substr(0, expected.size()), expected) << document.dump();
}

TEST(CaseFile, AnInputThatOverflowsItsDtypeIsRefused) {
  Json document = with("/steps/0/towers/0/input/data/1", 70000);
  EXPECT_EQ(refusal(document), "");
  document["dtype"] = "float16";
  EXPECT_EQ(refusal(document),
            "steps[0].towers[0].input.data[1]: expected a number within the range of Half, got 70000");
  document["dtype"] = "bfloat16";
  EXPECT_EQ(refusal(document), "");
  document["steps"][0]["towers"][0]["input"]["data"][1] = "-Infinity";
  document["dtype"] = "float16";
  EXPECT_EQ(refusal(document), "");
}

}  // namespace
}  // namespace bnlab
