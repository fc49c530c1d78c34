// The backbone resnet: its layers as torchvision's, counted.
#include <gtest/gtest.h>

#include "harness/models/backbone.hpp"
#include "tests/models/outline.hpp"

namespace bnlab::resnet_test {
namespace {

Json fcn_on(int64_t depth, const char* stem = "plain", int64_t output_stride = 8) {
  return {{"name", "fcn"},
          {"backbone", {{"name", "resnet"}, {"depth", depth}, {"stem", stem}}},
          {"output_stride", output_stride}};
}

// Counts of torchvision's networks without their last layer, stage by stage.
TEST(ResNet, HasAsManyParametersAsThePublishedNetworks) {
  struct Published {
    int64_t depth, all;
    std::array<int64_t, 4> stages;
    size_t sites;
  };
  for (const auto& [depth, all, stages, sites] :
       {Published{18, 11176512, {147968, 525568, 2099712, 8393728}, 20},
        Published{34, 21284672, {221952, 1116416, 6822400, 13114368}, 36},
        Published{50, 23508032, {215808, 1219584, 7098368, 14964736}, 53}}) {
    SCOPED_TRACE(depth);
    const Outline built(fcn_on(depth), 21);
    EXPECT_EQ(built.parameters("backbone."), all);
    for (size_t s = 0; s < 4; ++s)
      EXPECT_EQ(built.parameters("backbone.layer" + std::to_string(s + 1) + "."), stages[s]);
    EXPECT_EQ(built.norms().size(), sites + 1);
  }
}

TEST(ResNet, TheDeepStemIsSemsegs) {
  const Outline built(fcn_on(50, "deep"), 21);
  EXPECT_EQ(built.parameters("backbone."), 23631808);
}

TEST(ResNet, DilationKeepsTheSizeOfTheLastMaps) {
  for (const int64_t stride : {8, 16, 32}) {
    const Json options = resolved_component("backbone", {{"name", "resnet"}, {"width", 2}});
    Ledger ledger;
    CountingCommunicator communicator(1, ledger);
    const auto strategy =
        Registered<Strategy>::create(resolved_component("strategy", "none"),
                                     {.statistics = communicator, .host = communicator, .shadows = {}});
    const auto trunk = Registered<Backbone>::create(options, {stride})->build(*strategy, "backbone");
    const Batch batch{at::zeros({1, 3, 65, 96}), {}, Towers({1}, 1, 0)};
    std::vector<int64_t> heights;
    for (const at::Tensor& map : trunk->forward(batch.images, batch.pass({}, Mode::train)))
      heights.push_back(map.size(2));
    EXPECT_EQ(heights, (std::vector<int64_t>{33, 17, 9, stride >= 16 ? 5 : 9,
                                             stride == 32   ? 3
                                             : stride == 16 ? 5
                                                            : 9}));
  }
}

// The second convolution of bottlenecks, block by block, at output stride 8.
TEST(ResNet, TheFirstBlockOfADilatedStageIsTorchvisionsOrSemsegs) {
  for (const bool dilated : {false, true}) {
    Json model = fcn_on(50);
    model["backbone"]["dilate_first_block"] = dilated;
    const Outline net(model);
    const auto dilation = [&](const std::string& block) {
      return net.conv_at("backbone." + block + ".conv2").dilation;
    };
    EXPECT_EQ(dilation("layer2.0"), 1);
    EXPECT_EQ(dilation("layer3.0"), dilated ? 2 : 1);
    EXPECT_EQ(dilation("layer3.1"), 2);
    EXPECT_EQ(dilation("layer4.0"), dilated ? 4 : 2);
    EXPECT_EQ(dilation("layer4.2"), 4);
  }
}

TEST(ResNet, RefusesDepthsThatWereNeverPublished) {
  Problems problems;
  check_component("model", resolved_component("model", fcn_on(20)), "model", {}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.backbone.depth");
  EXPECT_EQ(problems.found()[0].second, "expected 18, 34, 50 or 101, got 20");
}

TEST(ResNet, RefusesOutputStridesBetween) {
  Problems problems;
  check_component("model", resolved_component("model", fcn_on(18, "plain", 12)), "model", {}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.output_stride");
  EXPECT_EQ(problems.found()[0].second, "expected 8 or 16 or 32 on the backbone \"resnet\", got 12");
}

}  // namespace
}  // namespace bnlab::resnet_test
