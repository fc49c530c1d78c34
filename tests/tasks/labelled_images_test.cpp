#include "harness/tasks/labelled_images.hpp"

#include <gtest/gtest.h>

#include "harness/error.hpp"
#include "harness/tasks/task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <ATen/Parallel.h>

#include <cmath>

#include "tests/tasks/write_images.hpp"

namespace bnlab {
namespace {

using testing::TemporaryFolder;
using testing::write_png;

constexpr LabelIds kIds{.classes = 11, .void_id = 11};

// One grey image of the given values with labels, read back at a scale.
LabelledImages reduced(const testing::Picture& grey, const testing::Picture& labels, double scale) {
  const TemporaryFolder folder;
  write_png(folder.path("image.png"), grey, PNG_COLOR_TYPE_GRAY);
  write_png(folder.path("labels.png"), labels, PNG_COLOR_TYPE_GRAY);
  return load_labelled_images({{folder.path("image.png"), folder.path("labels.png"), ""}}, scale, kIds);
}

std::vector<int64_t> values(const at::Tensor& tensor) {
  const auto flat = tensor.to(at::kLong).flatten();
  return {flat.const_data_ptr<int64_t>(), flat.const_data_ptr<int64_t>() + flat.numel()};
}

std::vector<int64_t> first_channel(const LabelledImages& set) {
  return values(set.images.select(3, 0));
}

TEST(LabelledImages, HalfScaleIsTheRoundedAverageOfFour) {
  const auto set = reduced({2, 4, {10, 20, 0, 255, 30, 41, 1, 255}}, {2, 4, {0, 1, 2, 3, 4, 5, 6, 11}}, 0.5);
  EXPECT_EQ(first_channel(set), (std::vector<int64_t>{25, 128}));         // 25.25 and 127.75
  EXPECT_EQ(values(set.labels), (std::vector<int64_t>{5, Task::kVoid}));  // under the centre
}

TEST(LabelledImages, OtherScalesShareThePixelsOnABorder) {
  // 3 to 2 columns: the first is (1 * 90 + 0.5 * 30) / 1.5, the second (0.5 * 30 + 1 * 60) / 1.5.
  const auto set = reduced({1, 3, {90, 30, 60}}, {1, 3, {7, 8, 9}}, 0.6);
  EXPECT_EQ(first_channel(set), (std::vector<int64_t>{70, 50}));
  EXPECT_EQ(values(set.labels), (std::vector<int64_t>{7, 9}));
}

TEST(LabelledImages, FullScaleKeepsEveryValue) {
  const auto set = reduced({1, 3, {90, 30, 255}}, {1, 3, {0, 10, 11}}, 1.0);
  EXPECT_EQ(first_channel(set), (std::vector<int64_t>{90, 30, 255}));
  EXPECT_EQ(values(set.labels), (std::vector<int64_t>{0, 10, -1}));
}

TEST(LabelledImages, ChannelMomentsAreOverAllPixels) {
  LabelledImages set{at::zeros({2, 1, 2, 3}, at::kByte), at::zeros({2, 1, 2}, at::kShort)};
  set.images.select(3, 0).copy_(at::tensor({10, 20, 30, 40}).view({2, 1, 2}));
  const ChannelMoments moments = channel_moments(set);
  EXPECT_FLOAT_EQ(moments.mean[0], 25);
  EXPECT_FLOAT_EQ(moments.deviation[0], std::sqrt(125.0f));
  EXPECT_FLOAT_EQ(moments.mean[1], 0);
  EXPECT_FLOAT_EQ(moments.deviation[1], 1);  // a constant channel is not blown up
}

TEST(LabelledImages, ThreadsGiveTheSameImagesAndTheFirstError) {
  const TemporaryFolder folder;
  std::vector<LabelledFile> files;
  for (int i = 0; i < 12; ++i) {
    const std::string name = folder.path(std::to_string(i) + ".png");
    write_png(name, {1, 2, {static_cast<uint8_t>(i % 11), 3}}, PNG_COLOR_TYPE_GRAY);
    files.push_back({name, name, ""});
  }
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const LabelledImages one = load_labelled_images(files, 1, kIds);
  at::set_num_threads(4);
  const LabelledImages four = load_labelled_images(files, 1, kIds);
  EXPECT_TRUE(one.images.equal(four.images));
  EXPECT_TRUE(one.labels.equal(four.labels));
  for (const size_t bad : {4, 9}) {
    write_png(files[bad].labels, {1, 2, {99, 99}}, PNG_COLOR_TYPE_GRAY);
  }
  try {
    load_labelled_images(files, 1, kIds);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).rfind(files[4].labels, 0), 0u) << error.what();
  }
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace bnlab

#endif
