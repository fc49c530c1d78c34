// pspnet: semseg's names; its resizes; its norm that sees one value per image.
#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/models/outline.hpp"

namespace bnlab {
namespace {

const Json kSmall = {{"name", "pspnet"}, {"backbone", {{"name", "resnet"}, {"width", 2}}}};

Json small(const Json& options) {
  Json model = kSmall;
  model.update(options);
  return model;
}

at::Tensor images(int64_t samples) {
  at::manual_seed(1);
  return at::randn({samples, 3, 33, 41}, at::kDouble);
}

TEST(PspNet, NamesItsLayersAsSemseg) {
  const Outline net(kSmall);
  for (const char* name : {"ppm.features.0.1.weight", "ppm.features.0.2.bias", "ppm.features.3.2.weight",
                           "cls.0.weight", "cls.1.bias", "cls.4.bias", "aux.0.weight", "aux.1.weight",
                           "aux.4.weight", "backbone.layer4.1.conv2.weight"}) {
    EXPECT_TRUE(net.has(name)) << name;
  }
  EXPECT_EQ(net.part_of("cls.4.bias"), Part::head);
  EXPECT_EQ(net.part_of("aux.4.weight"), Part::head);
  EXPECT_EQ(net.part_of("cls.0.weight"), Part::features);
  EXPECT_EQ(net.part_of("ppm.features.0.2.running_mean"), Part::features);
  EXPECT_EQ(net.part_of("backbone.bn1.weight"), Part::backbone);
}

// One image in a tower is one value per channel at bin 1.
TEST(PspNet, OneImageInATowerIsRefusedAtTheSiteOfBin1) {
  OneRankNetwork built(kSmall);
  try {
    built.forward(images(1));
    FAIL() << "a single value was normalised";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::refused);
    EXPECT_STREQ(e.what(),
                 "more than 1 value per channel is needed to normalise (site ppm.features.0.2, strategy "
                 "per_tower, set of 1)");
  }
  const at::Tensor two = built.forward(images(2)).logits;
  EXPECT_TRUE(two.isfinite().all().item<bool>());
  const at::Tensor evaluated = built.forward(images(1), Mode::evaluate_saved).logits;
  EXPECT_TRUE(evaluated.isfinite().all().item<bool>());
}

TEST(PspNet, WithoutTheNormOfBin1OneImageWillDo) {
  OneRankNetwork built(small({{"norm_at_bin_1", false}}));
  EXPECT_TRUE(built.forward(images(1)).logits.isfinite().all().item<bool>());
  const Outline net(small({{"norm_at_bin_1", false}}));
  EXPECT_TRUE(net.has("ppm.features.0.1.bias"));
  EXPECT_FALSE(net.has("ppm.features.0.2.weight"));
  EXPECT_TRUE(net.has("ppm.features.1.2.weight"));
}

// What align_corners means on images of 8k + 1 pixels: every eighth pixel has the logits of a position of the
// map.
TEST(PspNet, EveryEighthPixelIsAPositionOfTheMap) {
  OneRankNetwork built(kSmall);
  const Batch batch{images(2), {}, Towers({2}, 1, 0)};
  Pass pass = batch.pass({}, Mode::evaluate_saved);
  const Network::Maps maps = built.network().features(batch.images, pass);
  const at::Tensor logits = built.network().head(maps, pass).logits;
  pass.details.image_size = {maps[0].size(2), maps[0].size(3)};  // then nothing is resized
  const at::Tensor at_positions = built.network().head(maps, pass).logits;
  const at::Tensor every_eighth = logits.slice(2, 0, 33, 8).slice(3, 0, 41, 8);
  EXPECT_LT((every_eighth - at_positions).abs().max().item<double>(), 1e-12);
}

TEST(PspNet, TheBinsMustDivideTheChannels) {
  Problems problems;
  check_component("model", resolved_component("model", small({{"bins", {1, 2, 3}}})), "model", {}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.bins");
  EXPECT_EQ(problems.found()[0].second,
            "expected as many as divide the 16 channels of the backbone's last map, got 3");
}

}  // namespace
}  // namespace bnlab
