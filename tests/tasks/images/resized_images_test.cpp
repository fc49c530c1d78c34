#include "harness/tasks/images/resized_images.hpp"

#include <gtest/gtest.h>

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::resized_images_test {
namespace {

using test::Picture;
using test::TemporaryFolder;
using test::write_png;

// Columns of grey `low` and `high` in turn, each one pixel wide.
Picture columns(int height, int width, uint8_t low, uint8_t high) {
  Picture picture{height, width, {}};
  for (int p = 0; p < height * width; ++p) picture.values.push_back(p % width % 2 == 0 ? low : high);
  return picture;
}

TEST(ResizedImages, TheShortSideHasTheLengthAskedFor) {
  const TemporaryFolder folder;
  write_png(folder.path("wide.png"), columns(20, 50, 9, 9), PNG_COLOR_TYPE_GRAY);
  write_png(folder.path("high.png"), columns(31, 10, 9, 9), PNG_COLOR_TYPE_GRAY);
  const ResizedImages images({folder.path("wide.png"), folder.path("high.png")}, 16);
  EXPECT_EQ(images.image(0).sizes(), (std::vector<int64_t>{16, 40, 3}));
  EXPECT_EQ(images.image(1).sizes(), (std::vector<int64_t>{49, 16, 3}));  // 49.6, as torchvision rounds
  EXPECT_TRUE(images.image(0).eq(9).all().item<bool>());
}

// Nearest or plain bilinear sampling would keep the columns.
TEST(ResizedImages, ReducingAverages) {
  const TemporaryFolder folder;
  write_png(folder.path("fine.png"), columns(64, 64, 0, 200), PNG_COLOR_TYPE_GRAY);
  const at::Tensor small = ResizedImages({folder.path("fine.png")}, 8).image(0);
  const at::Tensor inner = small.slice(1, 1, 7).to(at::kInt);
  EXPECT_LE((inner - 100).abs().max().item<int>(), 8);
}

TEST(ResizedImages, WhatDoesNotFitIntoTheBudgetIsReadAgainAndTheSame) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 3; ++i) {
    files.push_back(folder.path(std::to_string(i) + ".png"));
    write_png(files.back(), columns(20, 30, static_cast<uint8_t>(10 * i), 200), PNG_COLOR_TYPE_GRAY);
  }
  const ResizedImages all(files, 16), one(files, 16, 1100);
  for (int64_t i = 0; i < 3; ++i) EXPECT_TRUE(one.image(i).equal(all.image(i))) << i;
  EXPECT_TRUE(one.image(0).is_alias_of(one.image(0)));
  EXPECT_FALSE(one.image(1).is_alias_of(one.image(1)));
  EXPECT_TRUE(all.image(2).is_alias_of(all.image(2)));
}

}  // namespace
}  // namespace bnlab::resized_images_test

#endif
