// deeplab_v3 and deeplab_v3_plus: torchvision's and VainF's names; the dilations of their pyramids.
#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

Json deeplab(const char* name, int64_t depth, const Json& more = Json::object()) {
  Json model = {{"name", name}, {"backbone", {{"name", "resnet"}, {"depth", depth}}}};
  model.update(more);
  return model;
}

TEST(DeepLabV3, NamesItsLayersAsTorchvision) {
  const Outline net(deeplab("deeplab_v3", 18, {{"auxiliary_weight", 0.5}}));
  for (const char* name :
       {"classifier.0.convs.0.0.weight", "classifier.0.convs.0.1.weight", "classifier.0.convs.3.1.bias",
        "classifier.0.convs.4.1.weight", "classifier.0.convs.4.2.weight", "classifier.0.project.0.weight",
        "classifier.0.project.1.weight", "classifier.1.weight", "classifier.2.bias", "classifier.4.bias",
        "aux_classifier.0.weight", "aux_classifier.1.bias", "aux_classifier.4.weight"}) {
    EXPECT_TRUE(net.has(name)) << name;
  }
  EXPECT_EQ(net.part_of("classifier.4.bias"), Part::head);
  EXPECT_EQ(net.part_of("aux_classifier.4.bias"), Part::head);
  EXPECT_EQ(net.part_of("classifier.0.convs.4.2.weight"), Part::features);
  EXPECT_EQ(net.part_of("backbone.conv1.weight"), Part::backbone);
}

TEST(DeepLabV3, ThePyramidsDilationsFollowTheOutputStride) {
  for (const auto& [stride, first] : std::map<int64_t, int64_t>{{8, 12}, {16, 6}}) {
    const Outline net(deeplab("deeplab_v3", 18, {{"output_stride", stride}}));
    for (int64_t i = 1; i <= 3; ++i) {
      const ConvSite site = net.conv_at("classifier.0.convs." + std::to_string(i) + ".0");
      EXPECT_EQ(site.dilation, i * first);
      EXPECT_EQ(site.padding, i * first);
    }
  }
}

TEST(DeepLabV3, OneImageInATowerIsRefusedAtTheMeanOfTheImage) {
  const Json backbone = {{"name", "resnet"}, {"width", 2}};
  OneRankNetwork built({{"name", "deeplab_v3"}, {"backbone", backbone}, {"head_width", 4}});
  try {
    built.forward(at::ones({1, 3, 33, 41}, at::kDouble));
    FAIL() << "a single value was normalised";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("site classifier.0.convs.4.2"), std::string::npos) << e.what();
  }
}

TEST(DeepLabV3Plus, NamesItsLayersAsVainF) {
  const Outline net(deeplab("deeplab_v3_plus", 18));
  for (const char* name :
       {"classifier.project.0.weight", "classifier.project.1.weight", "classifier.aspp.convs.4.2.bias",
        "classifier.aspp.project.0.weight", "classifier.classifier.0.weight", "classifier.classifier.1.bias",
        "classifier.classifier.3.bias"}) {
    EXPECT_TRUE(net.has(name)) << name;
  }
  EXPECT_EQ(net.part_of("classifier.classifier.3.weight"), Part::head);
  EXPECT_EQ(net.part_of("classifier.classifier.0.weight"), Part::features);
}

}  // namespace
}  // namespace bnlab
