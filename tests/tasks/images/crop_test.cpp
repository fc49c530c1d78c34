#include "harness/tasks/images/crop.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "harness/tasks/task.hpp"

namespace bnlab::crop_test {
namespace {

constexpr ChannelMoments kPlain{{0, 0, 0}, {1, 1, 1}};

struct Cut {
  at::Tensor image;   // [3, h, w]
  at::Tensor labels;  // [h, w]
};

Cut cut(const Photograph& photograph, const Crop& crop, const ChannelMoments& moments = kPlain) {
  Cut result{at::full({3, crop.height, crop.width}, -99.0f),
             at::full({crop.height, crop.width}, int64_t{-99}, at::kLong)};
  cut(photograph, crop, moments, result.image, result.labels);
  return result;
}

// images: uint8 [height, width, 3]; labels: int16 [height, width]
Photograph photograph_of(const at::Tensor& image, const at::Tensor& labels) {
  const auto* pixels = image.const_data_ptr<uint8_t>();
  const auto* ids = labels.const_data_ptr<int16_t>();
  return {image.size(0), image.size(1), {pixels, pixels + image.numel()}, {ids, ids + labels.numel()}};
}

at::Tensor image_of(const Photograph& photograph) {  // float32 [height, width, 3]
  return at::tensor(at::ArrayRef<uint8_t>(photograph.pixels), at::kFloat)
      .view({photograph.height, photograph.width, 3});
}

at::Tensor labels_of(const Photograph& photograph) {  // int64 [height, width]
  return at::tensor(at::ArrayRef<int16_t>(photograph.labels), at::kLong)
      .view({photograph.height, photograph.width});
}

Cut whole(const Photograph& photograph, const ChannelMoments& moments = kPlain) {
  return cut(photograph, whole_image(photograph, photograph.height, photograph.width), moments);
}

Photograph random_photograph(int64_t height, int64_t width) {
  at::manual_seed(1);
  const auto image = at::randint(0, 256, {height, width, 3}, at::kByte);
  return photograph_of(image, at::randint(-1, 11, {height, width}, at::kShort));
}

// An image whose colour is its label: labels that change on a coarse grid, grey value 20 * label.
Photograph coded_photograph() {
  const auto coarse = at::arange(12, at::kShort).view({3, 4}).remainder(11);
  const auto labels = coarse.repeat_interleave(16, 0).repeat_interleave(16, 1).contiguous();
  const auto grey = (labels * 20).to(at::kByte).unsqueeze(-1);
  return photograph_of(grey.expand({48, 64, 3}).contiguous(), labels);
}

TEST(Crop, TheWholeImageIsUnchangedAndNormalised) {
  const Photograph photograph = random_photograph(9, 13);
  const ChannelMoments moments{{10, 20, 30}, {2, 4, 8}};
  const Cut all = whole(photograph, moments);
  EXPECT_TRUE(all.labels.equal(labels_of(photograph)));
  const auto mean = at::tensor({10.0f, 20.0f, 30.0f}), deviation = at::tensor({2.0f, 4.0f, 8.0f});
  const auto expected = ((image_of(photograph) - mean) / deviation).permute({2, 0, 1});
  EXPECT_TRUE(all.image.allclose(expected, 0, 1e-5));
}

// LibTorch's own bilinear (half-pixel centres, as here) and nearest-exact resizing are the reference.
TEST(Crop, ScalingEqualsLibTorchsResizing) {
  const Photograph photograph = random_photograph(20, 30);
  for (const auto& [height, width] : std::vector<std::pair<int64_t, int64_t>>{{31, 47}, {15, 23}}) {
    const Crop crop{height, width, height, width, 0, 0, false};
    const Cut scaled = cut(photograph, crop);
    const auto source = image_of(photograph).permute({2, 0, 1}).unsqueeze(0);
    const auto expected = at::upsample_bilinear2d(source, {height, width}, false)[0];
    EXPECT_TRUE(scaled.image.allclose(expected, 0, 1e-3)) << (scaled.image - expected).abs().max();
    const auto ids = labels_of(photograph).to(at::kFloat).view({1, 1, 20, 30});
    const auto nearest = at::_upsample_nearest_exact2d(ids, {height, width})[0][0];
    EXPECT_TRUE(scaled.labels.equal(nearest.to(at::kLong)));
  }
}

TEST(Crop, ACropIsAWindowOfTheScaledImage) {
  const Photograph photograph = random_photograph(20, 30);
  const Cut whole = cut(photograph, {40, 45, 40, 45, 0, 0, false});
  const Cut window = cut(photograph, {8, 12, 40, 45, 5, 9, false});
  EXPECT_TRUE(window.image.equal(whole.image.slice(1, 5, 13).slice(2, 9, 21)));
  EXPECT_TRUE(window.labels.equal(whole.labels.slice(0, 5, 13).slice(1, 9, 21)));
}

TEST(Crop, FlipMirrorsImageAndLabels) {
  const Photograph photograph = random_photograph(20, 30);
  Crop crop{8, 12, 40, 45, 5, 9, false};
  const Cut straight = cut(photograph, crop);
  crop.flip = true;
  const Cut flipped = cut(photograph, crop);
  EXPECT_TRUE(flipped.image.equal(straight.image.flip({2})));
  EXPECT_TRUE(flipped.labels.equal(straight.labels.flip({1})));
}

TEST(Crop, OutsideThePhotographIsVoidAndZero) {
  const Photograph photograph = random_photograph(10, 10);
  const Cut padded = cut(photograph, {14, 16, 10, 10, -3, -2, false}, {{100, 100, 100}, {50, 50, 50}});
  const Cut all = whole(photograph, {{100, 100, 100}, {50, 50, 50}});
  EXPECT_TRUE(padded.image.slice(1, 3, 13).slice(2, 2, 12).equal(all.image));
  EXPECT_TRUE(padded.labels.slice(0, 3, 13).slice(1, 2, 12).equal(all.labels));
  auto frame = at::ones({14, 16}, at::kBool);
  frame.slice(0, 3, 13).slice(1, 2, 12).fill_(false);
  EXPECT_TRUE(padded.labels.masked_select(frame).eq(Task::kVoid).all().item<bool>());
  EXPECT_EQ(padded.image.masked_select(frame).abs().sum().item<double>(), 0);
}

TEST(Crop, AWholeImageIsPaddedAtTheBottomAndOnTheRight) {
  const Photograph photograph = random_photograph(6, 7);
  const Cut padded = cut(photograph, whole_image(photograph, 9, 8)), all = whole(photograph);
  EXPECT_TRUE(padded.image.slice(1, 0, 6).slice(2, 0, 7).equal(all.image));
  EXPECT_TRUE(padded.labels.slice(0, 0, 6).slice(1, 0, 7).equal(all.labels));
  EXPECT_TRUE(padded.labels.slice(0, 6).eq(Task::kVoid).all().item<bool>());
  EXPECT_TRUE(padded.labels.slice(1, 7).eq(Task::kVoid).all().item<bool>());
  EXPECT_EQ(padded.image.slice(1, 6).abs().sum().item<double>(), 0);
}

TEST(Crop, MirroredImagesGoBackAndForth) {
  const auto row = at::arange(4).view({1, 1, 1, 4});
  EXPECT_TRUE(mirrored(row, 1, 11).flatten().equal(at::tensor({0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2}, at::kLong)));
  EXPECT_TRUE(mirrored(row, 3, 4).equal(row.expand({1, 1, 3, 4}))) << "a single row is all there is";
  EXPECT_TRUE(mirrored(row, 1, 4).equal(row));
  const auto image = at::rand({2, 3, 5, 6});
  EXPECT_TRUE(mirrored(image, 8, 9).equal(at::reflection_pad2d(image, {0, 3, 0, 3})));
}

// Wherever the four bilinear neighbours agree, the colour must be the label's: 20 times its id.
TEST(Crop, RandomCropsKeepImageAndLabelsAligned) {
  const Photograph photograph = coded_photograph();
  for (uint64_t draw = 0; draw < 200; ++draw) {
    Stream stream(1, "augment", draw);
    const Cut made = cut(photograph, random_crop(stream, photograph, 32, 40, 0.5, 2.0));
    const auto known = made.labels.ne(Task::kVoid);
    const auto off = (made.image[0] - made.labels * 20).abs().masked_select(known);
    // Borders between patches blend over at most 2 of 16 source pixels in each direction.
    EXPECT_GT(off.lt(1e-3).to(at::kFloat).mean().item<double>(), 0.6) << "draw " << draw;
    EXPECT_LE(off.median().item<double>(), 1e-3) << "draw " << draw;
  }
}

TEST(Crop, RandomCropsCoverScalesPositionsAndFlips) {
  const Photograph photograph = random_photograph(60, 80);
  int64_t flips = 0, padded = 0, smallest = 1000, largest = 0;
  for (uint64_t draw = 0; draw < 400; ++draw) {
    Stream stream(2, "augment", draw);
    const Crop crop = random_crop(stream, photograph, 48, 64, 0.5, 2.0);
    flips += crop.flip;
    padded += crop.scaled_height < 48;
    smallest = std::min(smallest, crop.scaled_height);
    largest = std::max(largest, crop.scaled_height);
    const auto inside = [](int64_t begin, int64_t scaled, int64_t size) {
      return begin >= std::min<int64_t>(0, scaled - size) && begin <= std::max<int64_t>(0, scaled - size);
    };
    EXPECT_TRUE(inside(crop.top, crop.scaled_height, 48) && inside(crop.left, crop.scaled_width, 64));
  }
  EXPECT_NEAR(static_cast<double>(flips), 200, 50);
  EXPECT_NEAR(static_cast<double>(padded), 80, 40);  // scales below 0.8 of 0.5 to 2.0
  EXPECT_LT(smallest, 34);
  EXPECT_GT(largest, 115);
}

void expect_colour(const Colour& colour, const Colour& expected) {
  for (size_t c = 0; c < 3; ++c) EXPECT_NEAR(colour[c], expected[c], 1e-3) << "channel " << c;
}

TEST(ColourChange, NothingIsChangedByDefault) {
  EXPECT_TRUE(ColourChange().none());
  expect_colour(changed({12, 200, 77}, {}), {12, 200, 77});
}

TEST(ColourChange, BrightnessAndContrastAreCutOff) {
  expect_colour(changed({10, 100, 250}, {.brightness = -20}), {0, 80, 230});
  expect_colour(changed({10, 100, 250}, {.contrast = 1.5f}), {15, 150, 255});
}

TEST(ColourChange, SaturationScalesTheDistanceToTheLargestChannel) {
  expect_colour(changed({200, 100, 50}, {.saturation = 0.5f}), {200, 150, 125});
  expect_colour(changed({200, 100, 50}, {.saturation = 0}), {200, 200, 200});
  // By at most 200 / 150: then the smallest channel is 0, and the other 200 - 100 * 4 / 3.
  expect_colour(changed({200, 100, 50}, {.saturation = 9}), {200, 200 - 400 / 3.0f, 0});
  expect_colour(changed({70, 70, 70}, {.saturation = 2}), {70, 70, 70});
}

TEST(ColourChange, HueTurnsTheColourCircle) {
  expect_colour(changed({255, 0, 0}, {.hue = 120}), {0, 255, 0});
  expect_colour(changed({255, 0, 0}, {.hue = -120}), {0, 0, 255});
  expect_colour(changed({200, 100, 50}, {.hue = 40}), {200, 200, 50});  // from 20 degrees to 60
  expect_colour(changed({200, 100, 50}, {.hue = -20}), {200, 50, 50});
  expect_colour(changed({50, 100, 200}, {.hue = 360}), {50, 100, 200});
  expect_colour(changed({70, 70, 70}, {.hue = 90}), {70, 70, 70});
}

TEST(ColourChange, ContrastMayComeFirst) {
  ColourChange change{.contrast = 1.2f, .saturation = 0.5f};
  expect_colour(changed({250, 100, 100}, change), {255, 210, 210});  // 250 175 175, times 1.2
  change.contrast_first = true;
  expect_colour(changed({250, 100, 100}, change), {255, 187.5f, 187.5f});  // 255 120 120, halfway to 255
}

}  // namespace
}  // namespace bnlab::crop_test
