#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/tasks/make_task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::image_folder_test {
namespace {

using test::Picture;
using test::write_jpeg;
using test::write_png;

// One value everywhere but for the columns from `edge` on, which are white.
Picture grey(int height, int width, uint8_t value, int edge = 1 << 20) {
  Picture picture{height, width, {}};
  for (int p = 0; p < height * width; ++p)
    picture.values.insert(picture.values.end(), 3, p % width >= edge ? 255 : value);
  return picture;
}

// Classes "B" (66), "a" (97) and "ab", in the order of their bytes, with images of several sizes.
class ImageFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    write_png(folder_.path("pets/train/a/1.png"), grey(20, 30, 10), PNG_COLOR_TYPE_RGB);
    write_jpeg(folder_.path("pets/train/B/deeper/2.JPG"), grey(40, 20, 20));
    write_png(folder_.path("pets/train/B/1.png"), grey(32, 16, 30, 8), PNG_COLOR_TYPE_RGB);
    write_jpeg(folder_.path("pets/train/ab/1.jpeg"), grey(16, 16, 40));
    write_png(folder_.path("pets/val/ab/9.png"), grey(16, 24, 50, 12), PNG_COLOR_TYPE_RGB);
    test::write_bytes(folder_.path("pets/train/a/notes.txt"), "not an image");
    test::write_bytes(folder_.path("pets/train/.hidden/1.png"), "not an image");
  }
  std::unique_ptr<Task> task(const Json& changes = Json::object()) const {
    Json options = {{"root", "pets"}, {"size", {8, 12}}, {"short_side", 16}};
    options.update(changes);
    return test::make_task("image_folder", options, {7, folder_.path()});
  }
  std::string error(const Json& changes = Json::object()) const {
    try {
      task(changes);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  test::TemporaryFolder folder_;
};

float normalised(double value, int channel) {
  constexpr double kMean[] = {123.675, 116.28, 103.53}, kDeviation[] = {58.395, 57.12, 57.375};
  return static_cast<float>((value - kMean[channel]) / kDeviation[channel]);
}

TEST_F(ImageFolderTest, ClassesAreTheFoldersInTheOrderOfTheirBytes) {
  const auto task = this->task();
  EXPECT_EQ(task->classes(), 3);
  EXPECT_EQ(task->training_samples(), 4);
  EXPECT_EQ(task->test_samples(), 1);
  EXPECT_EQ(task->sort_values("class"), (std::vector<double>{0, 0, 1, 2}));  // B/1, B/deeper/2, a/1, ab/1
  const Examples batch = task->training({{2, 0}, {1, 0}});
  EXPECT_TRUE(batch.labels.equal(at::tensor({1, 0}, at::kLong)));
  ASSERT_EQ(batch.images.sizes(), (std::vector<int64_t>{2, 3, 8, 12}));
  for (int c = 0; c < 3; ++c) {
    EXPECT_NEAR(batch.images[0][c].max().item<float>(), normalised(10, c), 1e-5);
    EXPECT_NEAR(batch.images[1][c][3][3].item<float>(), normalised(20, c), 0.03);
  }
}

TEST_F(ImageFolderTest, LinkedFoldersAreRead) {
  write_png(folder_.path("elsewhere/3.png"), grey(20, 30, 10), PNG_COLOR_TYPE_RGB);
  std::filesystem::create_directory_symlink(folder_.path("elsewhere"), folder_.path("pets/train/a/more"));
  EXPECT_EQ(task()->training_samples(), 5);
}

TEST_F(ImageFolderTest, WhatOtherSystemsLeaveIsNoClass) {
  for (const char* name : {"@eaDir", "__MACOSX", ".DS_Store"})
    write_png(folder_.path(std::string("pets/train/") + name + "/3.png"), grey(20, 30, 10),
              PNG_COLOR_TYPE_RGB);
  std::filesystem::create_directory_symlink("..", folder_.path("pets/train/a/") + "circle");
  EXPECT_EQ(task()->classes(), 3);
}

TEST_F(ImageFolderTest, AClassMayBeSpeltInTwoWays) {
  write_png(folder_.path("pets/train/K\xc3\xa4tzchen/1.png"), grey(20, 30, 10), PNG_COLOR_TYPE_RGB);
  write_png(folder_.path("pets/val/Ka\xcc\x88tzchen/2.png"), grey(20, 30, 10), PNG_COLOR_TYPE_RGB);
  EXPECT_EQ(task()->classes(), 4);
  EXPECT_EQ(task()->test_samples(), 2);
}

// The test image is 16x24, so that its short side stays; columns 6 to 17 are cut out, and 12 on are white.
TEST_F(ImageFolderTest, TestsTheMiddleOfTheImage) {
  const Examples test = task()->test(0, 1);
  EXPECT_EQ(test.labels.item<int64_t>(), 2);
  const at::Tensor row = test.images[0][1][4];
  for (int64_t x = 0; x < 12; ++x)
    EXPECT_NEAR(row[x].item<float>(), normalised(x < 6 ? 50 : 255, 1), 1e-5) << x;
}

// The image is 16 wide and stays so; a window of 12 begins at columns 0 to 4 and shows the white ones from 8
// on.
TEST_F(ImageFolderTest, TrainingWindowsAreDrawnAndDependOnSampleAndEpochAlone) {
  const auto task = this->task();
  std::set<int64_t> whites;
  bool starts_white = false, ends_white = false;
  for (int64_t epoch = 0; epoch < 60; ++epoch) {
    const at::Tensor row = task->training({{0, epoch}}).images[0][0][0];
    const at::Tensor white = row.gt(normalised(200, 0));
    whites.insert(white.sum().item<int64_t>());
    starts_white = starts_white || (white[0].item<bool>() && !white[11].item<bool>());
    ends_white = ends_white || (white[11].item<bool>() && !white[0].item<bool>());
  }
  EXPECT_EQ(whites, (std::set<int64_t>{4, 5, 6, 7, 8}));
  EXPECT_TRUE(starts_white && ends_white);
  EXPECT_TRUE(task->training({{1, 5}, {0, 3}}).images[1].equal(this->task()->training({{0, 3}}).images[0]));
}

TEST_F(ImageFolderTest, NamesWhatIsWrong) {
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_PRED2(has, error({{"test_split", "exam"}}),
               folder_.path("pets/exam") + ": no such folder; expected");
  EXPECT_PRED2(has, error({{"root", "../pets"}}), "task.root: expected a folder below");
  test::write_bytes(folder_.path("pets/train/a/odd.WebP"), "");
  EXPECT_PRED2(has, error(),
               folder_.path("pets/train/a/odd.WebP") + ": expected a JPEG or PNG file, got .webp");
  std::filesystem::remove(folder_.path("pets/train/a/odd.WebP"));
  write_png(folder_.path("pets/val/cat/1.png"), grey(16, 16, 1), PNG_COLOR_TYPE_RGB);
  EXPECT_PRED2(has, error(), folder_.path("pets/val/cat") + ": the training split has no such class");
  std::filesystem::remove_all(folder_.path("pets/val/cat"));
  test::truncate(folder_.path("pets/train/ab/1.jpeg"), 0.5);
  EXPECT_PRED2(has, error(), folder_.path("pets/train/ab/1.jpeg"));
  std::filesystem::remove(folder_.path("pets/train/ab/1.jpeg"));
  std::filesystem::create_directory(folder_.path("pets/train/none"));
  for (const char* name : {"ab", "none"})
    EXPECT_PRED2(has, error(), folder_.path("pets/train/") + name + ": no images here (.jpg, .jpeg or .png)");
  EXPECT_PRED2(has, error({{"short_side", 11}}),
               "short_side: expected at least the larger side of size, 12, got 11");
}

TEST_F(ImageFolderTest, ValidationShowsTrainingImagesAsTestImagesAreShown) {
  const auto whole = task();
  const auto tested = task({{"test_split", "train"}});
  ASSERT_EQ(tested->test_samples(), 4);
  const auto validation = whole->validation({1, 3});
  EXPECT_EQ(validation->test_samples(), 2);
  EXPECT_EQ(validation->classes(), 3);
  for (const auto& [place, sample] : {std::pair(0, 1), {1, 3}}) {
    const Examples shown = validation->test(place, 1), expected = tested->test(sample, 1);
    EXPECT_TRUE(at::equal(shown.images, expected.images)) << sample;
    EXPECT_TRUE(at::equal(shown.labels, expected.labels)) << sample;
  }
}

TEST_F(ImageFolderTest, SamplesAreNamedWithoutTheDataFolder) {
  for (const std::string& name : task()->sample_names())
    EXPECT_EQ(name.find(folder_.path()), std::string::npos) << name;
  EXPECT_EQ(task()->sample_names().back(), "2/1.jpeg");
}

}  // namespace
}  // namespace bnlab::image_folder_test

#endif
