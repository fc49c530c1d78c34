// What is answered to names and keys of other programs.
#include "harness/components/other_names.hpp"

#include <gtest/gtest.h>

#include "harness/components/registry.hpp"

namespace bnlab {
namespace {

const std::vector<std::string> kNetworks = {
    "unet", "segnet_basic", "pspnet", "deeplab_v3", "deeplab_v3_plus", "resnet", "vgg16"};

TEST(OtherNames, APlusIsPartOfAName) {
  EXPECT_EQ(plain_name("DeepLabV3+"), plain_name("deeplab_v3_plus"));
  EXPECT_NE(plain_name("deeplabv3+"), plain_name("deeplab_v3"));
  EXPECT_EQ(plain_name("torch.nn.BatchNorm2d"), "batchnorm");
}

TEST(OtherNames, ASlipOfTheFingerIsForgiven) {
  for (const auto& [theirs, ours] : {std::pair("unte", "unet"),
                                     {"pspnt", "pspnet"},
                                     {"segnet_bsaic", "segnet_basic"},
                                     {"deeplabv3pluss", "deeplab_v3_plus"},
                                     {"vgg_16", "vgg16"}}) {
    EXPECT_EQ(component_suggestion(theirs, kNetworks), std::string("; did you mean \"") + ours + "\"?");
  }
}

TEST(OtherNames, NoAnswerNamesAnotherNetwork) {
  for (const char* theirs : {"vgg19", "unet++", "hrnet", "deeplab_v2", "deeplabv4", "resnet50", "unet3",
                             "fcn8s", "segnet", "pspnet2", "senet"}) {
    const std::string answer = component_suggestion(theirs, kNetworks);
    EXPECT_TRUE(answer.starts_with("; known: ")) << theirs << answer;
  }
  EXPECT_TRUE(component_suggestion(std::string(10000, 'x'), kNetworks).starts_with("; known: "));
}

TEST(OtherNames, DepthsAreAnsweredWithTheirOptions) {
  EXPECT_EQ(answer_from_table("backbone", "ResNet50"), R"(; bnlab calls it {"name": "resnet", "depth": 50})");
  EXPECT_EQ(answer_from_table("model", "pspnet50"),
            R"(; bnlab calls it {"name": "pspnet", "backbone": {"name": "resnet", "depth": 50}})");
  EXPECT_EQ(answer_from_table("backbone", "resnet152"), "; there is resnet of depth 18, 34, 50 or 101");
  EXPECT_EQ(answer_from_table("model", "hrnet"), "");
}

TEST(OtherNames, NetworkAndEncoderAreAnsweredTogether) {
  const auto answer = [](const char* model) { return answer_to_encoder(Json::parse(model)); };
  EXPECT_EQ(
      answer(R"({"name": "Unet", "encoder_name": "resnet34", "encoder_weights": "imagenet"})"),
      R"(calls it {"name": "backbone_unet", "backbone": {"name": "resnet", "depth": 34}}, and weights to start )"
      R"(from are a key of the whole spec: "init_from": {"file": "encoder.safetensors", "part": "backbone"})");
  EXPECT_EQ(answer(R"({"name": "unet", "encoder_name": "vgg16_bn", "encoder_weights": null})"),
            R"(calls it {"name": "backbone_unet", "backbone": "vgg16"})");
  EXPECT_TRUE(
      answer(R"({"name": "DeepLabV3Plus", "encoder_name": "resnet50"})")
          .starts_with(
              R"(calls it {"name": "deeplab_v3_plus", "backbone": {"name": "resnet", "depth": 50}})"));
  EXPECT_TRUE(
      answer(R"({"name": "UnetPlusPlus", "encoder_name": "resnet34"})").starts_with("has no such network"));
  EXPECT_TRUE(
      answer(R"({"name": "Unet", "encoder_name": "mit_b0"})").starts_with(R"(has no encoder "mit_b0")"));
  EXPECT_EQ(answer(R"({"name": "unet", "base": 8})"), "");
}

TEST(OtherNames, KeysAreAnsweredByWhereTheyStand) {
  EXPECT_EQ(answer_to_other_key("", "learning_rate"), "; bnlab calls it \"optimizer.lr\"");
  EXPECT_EQ(answer_to_other_key("optimizer", "learning_rate"), "; bnlab calls it \"lr\"");
  EXPECT_EQ(answer_to_other_key("matrix.optimizer[1]", "learningRate"), "; bnlab calls it \"lr\"");
  EXPECT_EQ(answer_to_other_key("matrix", "batch-size"),
            "; bnlab calls it \"batch_per_tower\": the samples of one tower; the global batch is \"towers\" "
            "times that");
  EXPECT_EQ(answer_to_other_key("task", "num_workers"), "") << "a key of the whole spec alone";
  EXPECT_EQ(answer_to_other_key("matrix.strategy[0]", "weights"), "");
  EXPECT_EQ(answer_to_other_key("", "wobble"), "");
}

TEST(OtherNames, NoNameStandsTwiceInTheTable) {
  for (const char* family : {"model", "backbone", "optimizer", "loss", "task", kKeys}) {
    std::vector<std::string> names;
    for (const OtherName& each : other_names(family)) {
      const std::string name = plain_name(each.theirs);
      EXPECT_EQ(std::count(names.begin(), names.end(), name), 0) << family << " " << each.theirs;
      EXPECT_FALSE(each.ours.empty() && each.remark.empty()) << each.theirs;
      names.push_back(name);
    }
    EXPECT_FALSE(names.empty()) << family;
  }
}

}  // namespace
}  // namespace bnlab
