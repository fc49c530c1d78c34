// Every network that others have too has as many parameters and norm sites here as where it was published.
#include <gtest/gtest.h>

#include <string>

#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

struct Published {
  std::string name;
  std::string model;  // JSON
  int64_t classes;
  int64_t parameters;
  size_t sites;
};

// A model on a ResNet, with other options behind.
std::string on_resnet(const std::string& model, int depth, const std::string& options = "",
                      const std::string& resnet_options = "") {
  return R"({"name": ")" + model + R"(", "backbone": {"name": "resnet", "depth": )" + std::to_string(depth) +
         resnet_options + "}" + options + "}";
}

const std::string kDeepStem = R"(, "stem": "deep")";
const std::string kAlone = R"(, "auxiliary_weight": 0)";
const std::string kWithAuxiliary = R"(, "auxiliary_weight": 0.4)";

const std::vector<Published> kAll = {
    // torchvision
    {"ResNet18", on_resnet("classifier", 18), 1000, 11689512, 20},
    {"ResNet34", on_resnet("classifier", 34), 1000, 21797672, 36},
    {"ResNet50", on_resnet("classifier", 50), 1000, 25557032, 53},
    {"ResNet101", on_resnet("classifier", 101), 1000, 44549160, 104},
    {"Vgg16", R"({"name": "classifier", "backbone": "vgg16"})", 1, 14723136 + 513, 13},
    {"FcnResNet50", on_resnet("fcn", 50, kAlone), 21, 32957013, 54},
    {"FcnResNet50Auxiliary", on_resnet("fcn", 50, kWithAuxiliary), 21, 35322218, 55},
    {"FcnResNet101Auxiliary", on_resnet("fcn", 101, kWithAuxiliary), 21, 54314346, 106},
    {"DeepLabV3ResNet50Auxiliary", on_resnet("deeplab_v3", 50, kWithAuxiliary), 21, 42004074, 61},
    {"DeepLabV3ResNet101Auxiliary", on_resnet("deeplab_v3", 101, kWithAuxiliary), 21, 60996202, 112},
    // semseg
    {"PspNetResNet50", on_resnet("pspnet", 50, kAlone, kDeepStem), 21, 46716373, 60},
    {"PspNetResNet50Auxiliary", on_resnet("pspnet", 50, kWithAuxiliary, kDeepStem), 21, 49081578, 61},
    {"PspNetResNet50Of150Classes", on_resnet("pspnet", 50, kAlone, kDeepStem), 150, 46782550, 60},
    {"DeepStemResNet101", on_resnet("classifier", 101, "", kDeepStem), 1, 42623936 + 2049, 106},
    // mmsegmentation's head on torchvision's stem
    {"PspNetResNet18", on_resnet("pspnet", 18, kAlone), 11, 12621003, 25},
    {"PspNetResNet18Auxiliary", on_resnet("pspnet", 18, kWithAuxiliary), 11, 12621003 + 147584 + 65 * 11, 26},
    // VainF/DeepLabV3Plus-Pytorch
    {"DeepLabV3PlusResNet50", on_resnet("deeplab_v3_plus", 50), 21, 39761845, 61},
    // segmentation_models_pytorch
    {"UnetResNet18", on_resnet("backbone_unet", 18), 11, 14329659, 30},
    {"UnetResNet34", on_resnet("backbone_unet", 34), 1, 24436369, 46},
    {"UnetResNet50", on_resnet("backbone_unet", 50), 11, 32520960 + 145 * 11, 63},
    // the authors' SegNet-Basic, without the biases of convolutions before a norm
    {"SegNetBasic", R"({"name": "segnet_basic"})", 11, 1416075, 8},
    // He et al. 2016, section 4.2
    {"CifarResNet20", R"({"name": "cifar_resnet"})", 10, 269722, 19},
    {"CifarResNet20Of100Classes", R"({"name": "cifar_resnet"})", 100, 275572, 19},
    {"CifarResNet56", R"({"name": "cifar_resnet", "depth": 56})", 10, 853018, 55},
    // an LSTM of 64 behind it
    {"FrameLstm", R"({"name": "frame_lstm"})", 16, 303392, 19},
};

class ParameterCounts : public ::testing::TestWithParam<Published> {};

TEST_P(ParameterCounts, AreThePublishedOnes) {
  const Outline net(Json::parse(GetParam().model), GetParam().classes);
  EXPECT_EQ(net.parameters(), GetParam().parameters);
  EXPECT_EQ(net.norms().size(), GetParam().sites);
}

INSTANTIATE_TEST_SUITE_P(Published, ParameterCounts, ::testing::ValuesIn(kAll),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace bnlab
