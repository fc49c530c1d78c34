#include "harness/tasks/images/labelled_images.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <ATen/Parallel.h>

#include <cmath>

#include "tests/tasks/write_images.hpp"

namespace bnlab::labelled_images_test {
namespace {

using test::TemporaryFolder;
using test::write_png;

constexpr int64_t kClasses = 11, kEverything = int64_t{1} << 40;
const Reading kWhole{label_map(kClasses, {11}), 1.0, {}};

// Twelve files of one row, image and labels in one: a grey value that is also an id, and more of id 3.
class LabelledImagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 12; ++i) {
      const std::string name = folder_.path(std::to_string(i) + ".png");
      std::vector<uint8_t> values(static_cast<size_t>(2 + i), 3);  // 2 to 13 pixels
      values[0] = static_cast<uint8_t>(i % 11);
      write_png(name, {1, 2 + i, values}, PNG_COLOR_TYPE_GRAY);
      files_.push_back({name, name});
    }
  }
  LabelledImages load(int64_t budget) const { return {files_, kWhole, kClasses, budget}; }

  TemporaryFolder folder_;
  std::vector<LabelledFile> files_;
};

TEST_F(LabelledImagesTest, SummariesCountPixelsOfClassesAndBytes) {
  const LabelledImages set = load(kEverything);
  EXPECT_EQ(set.count(), 12);
  const auto& fifth = set.summaries()[5];  // 5 3 3 3 3 3 3
  EXPECT_EQ(fifth.height, 1);
  EXPECT_EQ(fifth.width, 7);
  EXPECT_EQ(fifth.class_pixels, (std::vector<int64_t>{0, 0, 0, 6, 0, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(fifth.sum, (std::array<uint64_t, 3>{23, 23, 23}));
  EXPECT_EQ(fifth.squares, (std::array<uint64_t, 3>{79, 79, 79}));
}

TEST_F(LabelledImagesTest, WhatDoesNotFitIsReadAgainWithTheSameBytes) {
  const LabelledImages all = load(kEverything), some = load(100), none = load(0);
  EXPECT_EQ(all.kept(), 12);
  EXPECT_GT(some.kept(), 0);
  EXPECT_LT(some.kept(), 12);
  EXPECT_EQ(none.kept(), 0);
  for (int64_t i = 0; i < 12; ++i) {
    for (const LabelledImages* set : {&some, &none}) {
      EXPECT_EQ(set->photograph(i)->pixels, all.photograph(i)->pixels);
      EXPECT_EQ(set->photograph(i)->labels, all.photograph(i)->labels);
    }
  }
  EXPECT_EQ(all.photograph(3), all.photograph(3)) << "kept ones are not copied";
}

TEST_F(LabelledImagesTest, ThreadsGiveTheSameImagesAndTheFirstError) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const LabelledImages one = load(kEverything);
  at::set_num_threads(4);
  const LabelledImages four = load(kEverything);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(one.photograph(i)->pixels, four.photograph(i)->pixels);
    EXPECT_EQ(one.photograph(i)->labels, four.photograph(i)->labels);
  }
  for (const size_t bad : {4, 9}) write_png(files_[bad].labels, {1, 2, {99, 99}}, PNG_COLOR_TYPE_GRAY);
  try {
    load(kEverything);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind(files_[4].labels, 0), 0u) << error.what();
  }
  at::set_num_threads(threads);
}

TEST(LabelledImages, RareClassesWeighMore) {
  // Frequencies: 60 of the 200 pixels of both images, 100 of 200, 20 of the second's 100; the median is 0.3.
  const std::vector<LabelledImages::Summary> images = {
      {.height = 1, .width = 100, .class_pixels = {20, 80, 0, 0}},
      {.height = 1, .width = 100, .class_pixels = {40, 20, 20, 0}}};
  EXPECT_EQ(class_pixels(images), (std::vector<int64_t>{60, 100, 20, 0}));
  const auto weights = median_frequency_weights(images);
  const std::vector<double> expected = {1, 0.3 / 0.5, 0.3 / 0.2, 0};
  for (size_t c = 0; c < 4; ++c) EXPECT_DOUBLE_EQ(weights[c], expected[c]);
}

TEST(LabelledImages, ChannelMomentsAreOverAllPixels) {
  // Two images of one and three pixels: 10, and 20, 30, 40 in the first channel; 0 in the others.
  const std::vector<LabelledImages::Summary> images = {
      {.height = 1, .width = 1, .sum = {10, 0, 0}, .squares = {100, 0, 0}},
      {.height = 1, .width = 3, .sum = {90, 0, 0}, .squares = {400 + 900 + 1600, 0, 0}}};
  const ChannelMoments moments = channel_moments(images);
  EXPECT_FLOAT_EQ(moments.mean[0], 25);
  EXPECT_FLOAT_EQ(moments.deviation[0], std::sqrt(125.0f));
  EXPECT_FLOAT_EQ(moments.mean[1], 0);
  EXPECT_FLOAT_EQ(moments.deviation[1], 1);  // a constant channel is not blown up
}

}  // namespace
}  // namespace bnlab::labelled_images_test

#endif
