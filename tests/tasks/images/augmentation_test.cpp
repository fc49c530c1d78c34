#include "harness/tasks/images/augmentation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab::augmentation_test {
namespace {

constexpr ChannelMoments kPlain{{0, 0, 0}, {1, 1, 1}};
constexpr int64_t kSize = 24;

struct Made {
  at::Tensor image = at::full({3, kSize, kSize}, -99.0f);
  at::Tensor labels = at::full({kSize, kSize}, int64_t{-99}, at::kLong);
  bool operator==(const Made& other) const { return image.equal(other.image) && labels.equal(other.labels); }
};

// A photograph of random colours whose left part, four fifths of it, is class 3, and whose right part is
// class 1.
Photograph photograph() {
  Photograph made{40, 50, {}, {}};
  Stream stream(1, "test");
  for (int64_t i = 0; i < 40 * 50; ++i) {
    for (int c = 0; c < 3; ++c) made.pixels.push_back(static_cast<uint8_t>(stream.below(256)));
    made.labels.push_back(i % 50 < 40 ? 3 : 1);
  }
  return made;
}

Made make(const Json& augment, uint64_t draw, const Photograph& of = photograph()) {
  Problems problems;
  const Json resolved = resolve({component_key("augmentation")}, {{"augmentation", augment}}, "", problems);
  for (const auto& [path, message] : problems.found()) ADD_FAILURE() << path << ": " << message;
  Made made;
  Stream stream(7, "augment", draw);
  Registered<Augmentation>::create(resolved["augmentation"], {})
      ->make(stream, of, 0.5, 2.0, kPlain, made.image, made.labels);
  return made;
}

Json with(const std::string& name, const Json& options) {
  Json augment = {{"name", name}};
  augment.update(options);
  return augment;
}

int64_t draws_that_differ(const Json& one, const Json& other) {
  int64_t differing = 0;
  for (uint64_t draw = 0; draw < 100; ++draw) differing += make(one, draw) == make(other, draw) ? 0 : 1;
  return differing;
}

TEST(Augmentation, PlainIsARandomCrop) {
  for (uint64_t draw = 0; draw < 20; ++draw) {
    Stream stream(7, "augment", draw);
    Made expected;
    cut(photograph(), random_crop(stream, photograph(), kSize, kSize, 0.5, 2.0), kPlain, expected.image,
        expected.labels);
    EXPECT_TRUE(make("plain", draw) == expected) << draw;
  }
}

TEST(Augmentation, EveryPresetIsAFunctionOfItsStream) {
  for (const char* name : {"plain", "semseg", "mmseg"}) EXPECT_EQ(draws_that_differ(name, name), 0) << name;
}

TEST(Augmentation, OptionsChangeHalfOfTheCrops) {
  for (const Json& options :
       {Json{{"flip", false}}, Json{{"rotation", 10}}, Json{{"brightness", 32}}, Json{{"contrast", 0.5}},
        Json{{"saturation", 0.5}}, Json{{"hue", 36}}, Json{{"blur", 5}}}) {
    EXPECT_NEAR(draws_that_differ("plain", with("plain", options)), 50, 20) << options;
  }
}

TEST(Augmentation, APresetIsItsOptions) {
  EXPECT_EQ(draws_that_differ("semseg", with("plain", {{"rotation", 10}, {"blur", 5}})), 0);
  EXPECT_EQ(draws_that_differ("mmseg", with("plain", {{"most_of_one_class", 0.75},
                                                      {"brightness", 32},
                                                      {"contrast", 0.5},
                                                      {"saturation", 0.5},
                                                      {"hue", 36}})),
            0);
  EXPECT_EQ(draws_that_differ("plain", with("semseg", {{"rotation", 0}, {"blur", 0}})), 0);
}

TEST(Augmentation, ColoursAndBlurLeaveLabelsAlone) {
  for (uint64_t draw = 0; draw < 30; ++draw) {
    EXPECT_TRUE(
        make("plain", draw)
            .labels.equal(make(with("plain", {{"brightness", 32}, {"hue", 36}, {"blur", 5}}), draw).labels));
  }
}

TEST(Augmentation, OneClassFillsFewCrops) {
  const auto filled = [](const Json& augment) {
    int64_t crops = 0;
    for (uint64_t draw = 0; draw < 100; ++draw) {
      const at::Tensor labels = make(augment, draw).labels;
      const double threes = labels.eq(3).sum().item<double>(), ones = labels.eq(1).sum().item<double>();
      crops += std::max(threes, ones) > 0.75 * (threes + ones) ? 1 : 0;
    }
    return crops;
  };
  EXPECT_GT(filled("plain"), 60);
  EXPECT_LT(filled(with("plain", {{"most_of_one_class", 0.75}})), filled("plain") - 30);
}

TEST(Blur, SpreadsAPointAsAGaussian) {
  at::Tensor image = at::zeros({1, 9, 9});
  image[0][4][4] = 1;
  blur(image, 5);
  EXPECT_NEAR(image.sum().item<double>(), 1, 1e-6);
  EXPECT_NEAR((image[0][4][6] / image[0][4][4]).item<double>(), std::exp(-4 / (2 * 1.1 * 1.1)), 1e-6);
  EXPECT_NEAR((image[0][3][5] / image[0][4][4]).item<double>(), std::exp(-2 / (2 * 1.1 * 1.1)), 1e-6);
  EXPECT_EQ(image[0][4][7].item<double>(), 0);
}

TEST(Blur, BordersAreMirrored) {
  at::Tensor image = at::zeros({1, 1, 9});
  image[0][0][1] = image[0][0][7] = 1;  // seen from both ends twice, at a distance of 1
  blur(image, 5);
  const double near = std::exp(-1 / (2 * 1.1 * 1.1)), far = std::exp(-4 / (2 * 1.1 * 1.1));
  EXPECT_NEAR(image[0][0][0].item<double>(), 2 * near / (1 + 2 * near + 2 * far), 1e-6);
  EXPECT_NEAR(image[0][0][8].item<double>(), 2 * near / (1 + 2 * near + 2 * far), 1e-6);
}

// The crop that shows all of a square photograph, turned by quarters.
TEST(TurnedCrop, AQuarterIsRot90) {
  Photograph square = photograph();
  square.height = square.width = kSize;
  square.pixels.resize(static_cast<size_t>(kSize * kSize * 3));
  square.labels.resize(static_cast<size_t>(kSize * kSize));
  for (size_t i = 0; i < square.labels.size(); ++i) square.labels[i] = static_cast<int16_t>(i % 7);
  Made straight, turned;
  Crop crop{kSize, kSize, kSize, kSize, 0, 0, false};
  cut(square, crop, kPlain, straight.image, straight.labels);
  crop.angle = std::numbers::pi / 2;
  cut(square, crop, kPlain, turned.image, turned.labels);
  EXPECT_TRUE(turned.labels.equal(straight.labels.rot90(1, {0, 1})));
  EXPECT_TRUE(turned.image.allclose(straight.image.rot90(1, {1, 2}), 0, 1e-2));
  crop.flip = true;
  Made flipped;
  cut(square, crop, kPlain, flipped.image, flipped.labels);
  EXPECT_TRUE(flipped.labels.equal(turned.labels.flip({1})));
}

TEST(TurnedCrop, BetweenTheQuartersTheCornersAreVoid) {
  const Photograph whole = photograph();
  Made turned;
  Crop crop{kSize, kSize, kSize, kSize, 0, 0, false};
  crop.angle = std::numbers::pi / 4;
  cut(whole, crop, kPlain, turned.image, turned.labels);
  EXPECT_EQ(turned.labels[0][0].item<int64_t>(), Task::kVoid);
  EXPECT_EQ(turned.image.select(1, 0).select(1, 0).abs().sum().item<double>(), 0);
  EXPECT_NE(turned.labels[kSize / 2][kSize / 2].item<int64_t>(), Task::kVoid);
}

TEST(TurnedCrop, ATinyAngleIsNone) {
  Made straight, turned;
  Crop crop{kSize, kSize, 60, 70, 5, 9, true};
  cut(photograph(), crop, kPlain, straight.image, straight.labels);
  crop.angle = 1e-9;
  cut(photograph(), crop, kPlain, turned.image, turned.labels);
  EXPECT_TRUE(turned.labels.equal(straight.labels));
  EXPECT_TRUE(turned.image.allclose(straight.image, 0, 1e-3));
}

}  // namespace
}  // namespace bnlab::augmentation_test
