#include "harness/tasks/images/pixels.hpp"

#include <gtest/gtest.h>

#ifdef BNLAB_WITH_IMAGES

#include "harness/tasks/images/image_file.hpp"
#include "tests/tasks/write_images.hpp"

namespace bnlab::pixels_test {
namespace {

using test::add_exif;
using test::exif_data;
using test::Picture;
using test::TemporaryFolder;

int orientation_in(const std::string& exif) {
  return exif_orientation({reinterpret_cast<const uint8_t*>(exif.data()), exif.size()});
}

// How the letters
//   a b c
//   d e f
// are to be looked at, by orientation.
struct Seen {
  int64_t height, width;
  std::string letters;
};
const std::vector<Seen> kSeen = {{2, 3, "abcdef"}, {2, 3, "cbafed"}, {2, 3, "fedcba"}, {2, 3, "defabc"},
                                 {3, 2, "adbecf"}, {3, 2, "daebfc"}, {3, 2, "fcebda"}, {3, 2, "cfbead"}};

TEST(Orientation, AllEightTurnPixelsUpright) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    Pixels stored{2, 3, 3, {}};
    for (const char letter : std::string("abcdef"))
      stored.values.insert(stored.values.end(), {static_cast<uint8_t>(letter), 1, 2});
    const Pixels turned = upright(stored, orientation);
    const Seen& expected = kSeen[static_cast<size_t>(orientation) - 1];
    std::string letters;
    for (size_t i = 0; i < turned.values.size(); i += 3) {
      letters += static_cast<char>(turned.values[i]);
      EXPECT_EQ(turned.values[i + 2], 2);
    }
    EXPECT_EQ(letters, expected.letters) << orientation;
    EXPECT_EQ(turned.height, expected.height);
    EXPECT_EQ(turned.width, expected.width);
    EXPECT_EQ(turned.orientation, orientation);
  }
}

TEST(Orientation, TheTagIsFoundInEitherOrderOfBytes) {
  for (int orientation = 1; orientation <= 8; ++orientation) {
    EXPECT_EQ(orientation_in(exif_data(orientation, true)), orientation);
    EXPECT_EQ(orientation_in(exif_data(orientation, false)), orientation);
  }
}

TEST(Orientation, DamagedDataLeaveThePhotographAsItIs) {
  const std::string whole = exif_data(6);
  for (size_t length = 0; length + 5 < whole.size();
       ++length) {  // behind the tag stand 4 bytes, and 2 of filling
    const int found = orientation_in(whole.substr(0, length));
    EXPECT_TRUE(found == 1 || (found == 6 && length >= whole.size() - 8)) << length;
  }
  EXPECT_EQ(orientation_in(exif_data(0)), 1);
  EXPECT_EQ(orientation_in(exif_data(9)), 1);
  std::string far = whole;
  far.replace(4, 4, "\xff\xff\xff\xf0");  // a directory beyond the end
  EXPECT_EQ(orientation_in(far), 1);
  far.replace(0, 2, "IM");
  EXPECT_EQ(orientation_in(far), 1);
}

TEST(Orientation, PhotographsAreTurnedWhenTheyAreRead) {
  const TemporaryFolder folder;
  Picture picture{6, 9, {}};
  for (int i = 0; i < 6 * 9 * 3; ++i) picture.values.push_back(static_cast<uint8_t>(i));
  for (const std::string name : {"a.jpg", "a.png"}) {
    const std::string file = folder.path(name);
    const auto write = [&] {
      name == "a.png" ? test::write_png(file, picture, PNG_COLOR_TYPE_RGB) : test::write_jpeg(file, picture);
    };
    write();
    const Pixels stored = read_rgb(file);
    EXPECT_EQ(stored.orientation, 1);
    for (int orientation = 1; orientation <= 8; ++orientation) {
      write();
      add_exif(file, exif_data(orientation, orientation % 2 == 0));
      const Pixels read = read_rgb(file), expected = upright(stored, orientation);
      EXPECT_EQ(read.values, expected.values) << name << " " << orientation;
      EXPECT_EQ(read.height, expected.height);
      EXPECT_EQ(read.orientation, orientation);
    }
  }
}

TEST(Orientation, LabelsAreTakenAsTheyAreStored) {
  const TemporaryFolder folder;
  test::write_png(folder.path("a.png"), {1, 2, {3, 4}}, PNG_COLOR_TYPE_GRAY);
  add_exif(folder.path("a.png"), exif_data(3));
  EXPECT_EQ(read_label_ids(folder.path("a.png")).values, (std::vector<uint8_t>{3, 4}));
}

}  // namespace
}  // namespace bnlab::pixels_test

#endif
