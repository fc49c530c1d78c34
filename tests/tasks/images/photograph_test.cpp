#include "harness/tasks/images/photograph.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "harness/tasks/task.hpp"

#ifdef BNLAB_WITH_IMAGES

#include "tests/tasks/write_images.hpp"

namespace bnlab::photograph_test {
namespace {

using test::Picture;
using test::TemporaryFolder;
using test::write_png;

// One grey image of the given values with labels, read back.
Photograph read_back(const Picture& grey, const Picture& labels, const Reading& reading) {
  const TemporaryFolder folder;
  write_png(folder.path("image.png"), grey, PNG_COLOR_TYPE_GRAY);
  write_png(folder.path("labels.png"), labels, PNG_COLOR_TYPE_GRAY);
  return read_photograph({folder.path("image.png"), folder.path("labels.png")}, reading);
}

Photograph reduced(const Picture& grey, const Picture& labels, double scale) {
  return read_back(grey, labels, {label_map(11, {11}), scale, {}});
}

std::vector<int> first_channel(const Photograph& photograph) {
  std::vector<int> values;
  for (size_t i = 0; i < photograph.pixels.size(); i += 3) values.push_back(photograph.pixels[i]);
  return values;
}

std::string error_of(const Picture& grey, const Picture& labels, const LabelMap& map) {
  try {
    read_back(grey, labels, {map, 1.0, {}});
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data);
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Photograph, HalfScaleIsTheRoundedAverageOfFour) {
  const auto photograph =
      reduced({2, 4, {10, 20, 0, 255, 30, 41, 1, 255}}, {2, 4, {0, 1, 2, 3, 4, 5, 6, 11}}, 0.5);
  EXPECT_EQ(first_channel(photograph), (std::vector<int>{25, 128}));     // 25.25 and 127.75
  EXPECT_EQ(photograph.labels, (std::vector<int16_t>{5, Task::kVoid}));  // under the centre
  EXPECT_EQ(photograph.file_size, (std::array<int64_t, 2>{2, 4}));
}

TEST(Photograph, OtherScalesShareThePixelsOnABorder) {
  // 3 to 2 columns: the first is (1 * 90 + 0.5 * 30) / 1.5, the second (0.5 * 30 + 1 * 60) / 1.5.
  const auto photograph = reduced({1, 3, {90, 30, 60}}, {1, 3, {7, 8, 9}}, 0.6);
  EXPECT_EQ(first_channel(photograph), (std::vector<int>{70, 50}));
  EXPECT_EQ(photograph.labels, (std::vector<int16_t>{7, 9}));
}

TEST(Photograph, FullScaleKeepsEveryValue) {
  const auto photograph = reduced({1, 3, {90, 30, 255}}, {1, 3, {0, 10, 11}}, 1.0);
  EXPECT_EQ(first_channel(photograph), (std::vector<int>{90, 30, 255}));
  EXPECT_EQ(photograph.labels, (std::vector<int16_t>{0, 10, -1}));
}

TEST(Photograph, LargerOnesAreReducedToFitWithTheirProportions) {
  const Picture picture{4, 8, std::vector<uint8_t>(32, 5)};
  const LabelMap map = label_map(11, {});
  const auto by_width = read_back(picture, picture, {map, 1.0, {{4, 4}}});
  EXPECT_EQ((std::vector<int64_t>{by_width.height, by_width.width}), (std::vector<int64_t>{2, 4}));
  const auto smaller = read_back(picture, picture, {map, 1.0, {{100, 100}}});
  EXPECT_EQ((std::vector<int64_t>{smaller.height, smaller.width}), (std::vector<int64_t>{4, 8}));
}

TEST(Photograph, IdsBecomeClassesByTheMap) {
  LabelMap map = label_map(0, {0, 255});
  map.class_of[7] = 0;
  map.class_of[8] = 1;
  const auto photograph = read_back({1, 4, {1, 2, 3, 4}}, {1, 4, {7, 255, 8, 0}}, {map, 1.0, {}});
  EXPECT_EQ(photograph.labels, (std::vector<int16_t>{0, Task::kVoid, 1, Task::kVoid}));
}

TEST(Photograph, ForeignIdsAreNamedWithTheirPlaceAndWhatIsExpected) {
  LabelMap map = label_map(0, {0, 255});
  map.class_of[7] = map.class_of[8] = 0;
  map.class_of[11] = 1;
  const std::string error = error_of({2, 2, {1, 1, 1, 1}}, {2, 2, {7, 8, 255, 9}}, map);
  EXPECT_TRUE(has(error, "labels.png: expected ids 7 to 8, 11 and 0, 255 (void), got 9 at row 1, column 1"))
      << error;
  EXPECT_TRUE(has(error_of({1, 1, {1}}, {1, 1, {5}}, label_map(5, {})), "expected ids 0 to 4, got 5"));
}

TEST(Photograph, OtherSizesAreNamedWithTheCureThatFits) {
  const LabelMap map = label_map(5, {});
  const std::string exchanged = error_of({1, 2, {1, 1}}, {2, 1, {1, 1}}, map);
  EXPECT_TRUE(has(exchanged, "one of them is turned")) << exchanged;
  const std::string error = error_of({1, 2, {1, 1}}, {1, 3, {1, 1, 1}}, map);
  EXPECT_TRUE(has(error, "expected the size of its image, 1x2, got 1x3")) << error;
}

TEST(Photograph, LabelsFitThePhotographAsItIsSeen) {
  const TemporaryFolder folder;
  const LabelledFile file{folder.path("image.png"), folder.path("labels.png")};
  write_png(file.image, {1, 2, {40, 40, 40, 90, 90, 90}}, PNG_COLOR_TYPE_RGB);
  test::add_exif(file.image, test::exif_data(6));
  write_png(file.labels, {2, 1, {3, 4}}, PNG_COLOR_TYPE_GRAY);
  const Photograph upright = read_photograph(file, {label_map(5, {}), 1.0, {}});
  EXPECT_EQ(upright.height, 2);
  EXPECT_EQ(first_channel(upright), (std::vector<int>{40, 90}));
  EXPECT_EQ(upright.labels, (std::vector<int16_t>{3, 4}));

  write_png(file.labels, {1, 2, {3, 4}}, PNG_COLOR_TYPE_GRAY);
  try {
    read_photograph(file, {label_map(5, {}), 1.0, {}});
    ADD_FAILURE() << "labels of the stored pixels were taken";
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "its EXIF orientation 6 turns it")) << error.what();
    EXPECT_TRUE(has(error.what(), "exiftool -overwrite_original -Orientation= " + file.image))
        << error.what();
  }
}

}  // namespace
}  // namespace bnlab::photograph_test

#endif
