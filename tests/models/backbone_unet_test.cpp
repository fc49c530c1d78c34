// backbone_unet: the names of segmentation_models_pytorch; sizes that do not halve evenly.
#include <gtest/gtest.h>

#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

Json unet_on(const Json& backbone, const Json& more = Json::object()) {
  Json model = {{"name", "backbone_unet"}, {"backbone", backbone}};
  model.update(more);
  return model;
}

TEST(BackboneUNet, NamesItsLayersAsThePublishedOne) {
  const Outline net(unet_on("vgg16", {{"center", true}}));
  for (const char* name :
       {"encoder.features.0.weight", "decoder.center.0.0.weight", "decoder.center.1.1.bias",
        "decoder.blocks.0.conv1.0.weight", "decoder.blocks.0.conv1.1.weight", "decoder.blocks.4.conv2.1.bias",
        "segmentation_head.0.weight", "segmentation_head.0.bias"}) {
    EXPECT_TRUE(net.has(name)) << name;
  }
  EXPECT_EQ(net.part_of("encoder.features.1.running_var"), Part::backbone);
  EXPECT_EQ(net.part_of("decoder.blocks.0.conv1.0.weight"), Part::features);
  EXPECT_EQ(net.part_of("segmentation_head.0.bias"), Part::head);
}

TEST(BackboneUNet, EachBlockTakesTheMapBeforeAndTheNextLargerOne) {
  const Outline net(unet_on("resnet"));
  std::vector<int64_t> in;
  for (int b = 0; b < 5; ++b)
    in.push_back(net.conv_at("decoder.blocks." + std::to_string(b) + ".conv1.0").in);
  EXPECT_EQ(in, (std::vector<int64_t>{512 + 256, 256 + 128, 128 + 64, 64 + 64, 32}));
}

TEST(BackboneUNet, TakesSizesThatDoNotHalveEvenly) {
  for (const int64_t stride : {8, 32}) {
    OneRankNetwork built(
        unet_on({{"name", "resnet"}, {"width", 2}}, {{"decoder_width", 1}, {"output_stride", stride}}), 4);
    const at::Tensor images = at::ones({2, 3, 45, 61}, at::kDouble);
    EXPECT_EQ(built.forward(images).logits.sizes(), (at::IntArrayRef{2, 4, 45, 61}));
  }
}

}  // namespace
}  // namespace bnlab
