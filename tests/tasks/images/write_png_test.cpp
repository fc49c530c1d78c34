// Pictures are read as they were written, and label maps keep their ids.
#include "harness/tasks/images/write_png.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>

#include "harness/error.hpp"

namespace bnlab::write_png_test {
namespace {

#ifdef BNLAB_WITH_IMAGES

class WritePng : public ::testing::Test {
 protected:
  std::string file_ =
      (std::filesystem::temp_directory_path() / ("bnlab-png-" + std::to_string(::getpid()))).string();
  ~WritePng() override { std::filesystem::remove(file_); }
};

TEST_F(WritePng, ColoursComeBack) {
  const Pixels written{2, 3, 3, {0, 1, 2, 3, 4, 5, 6, 7, 8, 250, 251, 252, 253, 254, 255, 9, 9, 9}};
  write_png(file_, written);
  const Pixels read = read_rgb(file_);
  EXPECT_EQ(read.height, 2);
  EXPECT_EQ(read.width, 3);
  EXPECT_EQ(read.values, written.values);
}

TEST_F(WritePng, ClassIdsComeBackAndHaveColours) {
  write_png(file_, {1, 4, 1, {0, 1, 15, 255}});
  EXPECT_EQ(read_label_ids(file_).values, (std::vector<uint8_t>{0, 1, 15, 255}));
  EXPECT_EQ(read_rgb(file_).values, (std::vector<uint8_t>{0, 0, 0, 128, 0, 0, 192, 128, 128, 224, 224, 192}));
}

TEST_F(WritePng, SaysWhereItCannotWrite) {
  EXPECT_THROW(write_png("/nowhere/at/all.png", {1, 1, 1, {0}}), Error);
}

#endif

}  // namespace
}  // namespace bnlab::write_png_test
