// What every backbone promises; vgg16 and plain, counted.
#include <gtest/gtest.h>

#include "harness/models/backbone.hpp"
#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

Json fcn_on(const Json& backbone, int64_t output_stride = 8) {
  return {{"name", "fcn"}, {"backbone", backbone}, {"output_stride", output_stride}};
}

class EveryBackbone : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryBackbone, GivesFiveMapsOfTheChannelsAndStridesThatItTells) {
  Json options = resolved_component("backbone", GetParam());
  options[options.contains("base") ? "base" : "width"] = 2;
  const auto& facts = facts_of<BackboneFacts>(options);
  Ledger ledger;
  CountingCommunicator communicator(1, ledger);
  const auto strategy =
      Registered<Strategy>::create(resolved_component("strategy", "none"),
                                   {.statistics = communicator, .host = communicator, .shadows = {}});
  const Batch batch{at::zeros({1, 3, 64, 96}), {}, Towers({1}, 1, 0)};
  for (const int64_t output_stride : facts.output_strides(options)) {
    const auto trunk = Registered<Backbone>::create(options, {output_stride})->build(*strategy, "");
    const Network::Maps maps = trunk->forward(batch.images, batch.pass({}, Mode::train));
    ASSERT_EQ(maps.size(), 5u);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(maps[i].size(1), facts.feature_channels(options)[i]);
      const int64_t stride = std::min<int64_t>(int64_t{2} << i, output_stride);
      if (output_stride >= 8)  // a backbone for small images may have finer maps
        EXPECT_EQ(maps[i].sizes().slice(2), (at::IntArrayRef{64 / stride, 96 / stride}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backbones, EveryBackbone, ::testing::ValuesIn(registered_names("backbone")),
                         [](const auto& info) { return info.param; });

TEST(Vgg16, HasTheLayersAndNamesOfTorchvisionsVgg16Bn) {
  const Outline net(fcn_on("vgg16"));
  EXPECT_EQ(net.parameters("backbone."), 14723136);
  EXPECT_EQ(net.norms().size(), 13u + 1u);
  for (const int n : {0, 3, 7, 10, 14, 17, 20, 24, 27, 30, 34, 37, 40}) {
    const std::string conv = "backbone.features." + std::to_string(n);
    EXPECT_TRUE(net.has(conv + ".bias"));
    EXPECT_EQ(net.conv_at(conv).kernel, 3);
    EXPECT_TRUE(net.has("backbone.features." + std::to_string(n + 1) + ".weight"));
  }
}

TEST(Vgg16, DilatesBehindPoolsThatAreLeftOut) {
  const Outline net(fcn_on("vgg16", 8));
  EXPECT_EQ(net.conv_at("backbone.features.30").dilation, 1);
  EXPECT_EQ(net.conv_at("backbone.features.34").dilation, 2);
  EXPECT_EQ(Outline(fcn_on("vgg16", 16)).conv_at("backbone.features.40").dilation, 1);
}

TEST(Vgg16, RefusesImagesThatCannotBeHalvedFiveTimes) {
  Problems problems;
  check_component("model", resolved_component("model", fcn_on("vgg16")), "model",
                  {.image_sizes = {{32, 32}, {40, 31}}}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.backbone.name");
  EXPECT_EQ(problems.found()[0].second,
            "vgg16 halves the image five times and needs at least 32x32, got 40x31");
}

TEST(Plain, IsTheEncoderOfUnet) {
  const Outline unet({{"name", "unet"}, {"base", 3}, {"levels", 6}});
  const Outline net(fcn_on({{"name", "plain"}, {"base", 3}}));
  EXPECT_EQ(net.parameters("backbone.encoder"), unet.parameters("encoder"));
  for (const ConvSite& site : unet.convs())
    if (site.name.rfind("encoder", 0) == 0)
      EXPECT_EQ(net.conv_at("backbone." + site.name).out, site.out) << site.name;
}

}  // namespace
}  // namespace bnlab
