#include "harness/tasks/images/image_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "harness/support/error.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/tasks/write_images.hpp"

namespace bnlab::image_file_test {
namespace {

using test::Picture;
using test::TemporaryFolder;
using test::write_jpeg;
using test::write_png;

std::string error_of(const std::string& file, Pixels (*read)(const std::string&)) {
  try {
    read(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::data);
    return error.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Picture gradient(int height, int width, int channels) {
  Picture picture{height, width, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < channels; ++c)
        picture.values.push_back(static_cast<uint8_t>(20 + 5 * y + 3 * x + 30 * c));
  }
  return picture;
}

TEST(ImageFile, PngRgbComesBackExactly) {
  const TemporaryFolder folder;
  const Picture written = gradient(7, 11, 3);
  write_png(folder.path("a.png"), written, PNG_COLOR_TYPE_RGB);
  const Pixels read = read_rgb(folder.path("a.png"));
  EXPECT_EQ(read.height, 7);
  EXPECT_EQ(read.width, 11);
  EXPECT_EQ(read.channels, 3);
  EXPECT_EQ(read.values, written.values);
}

TEST(ImageFile, GreyPaletteAndTransparentPngsBecomeRgb) {
  const TemporaryFolder folder;
  write_png(folder.path("grey.png"), {1, 2, {10, 200}}, PNG_COLOR_TYPE_GRAY);
  EXPECT_EQ(read_rgb(folder.path("grey.png")).values, (std::vector<uint8_t>{10, 10, 10, 200, 200, 200}));
  write_png(folder.path("palette.png"), {1, 2, {0, 250}}, PNG_COLOR_TYPE_PALETTE);
  EXPECT_EQ(read_rgb(folder.path("palette.png")).values, (std::vector<uint8_t>{255, 255, 255, 5, 5, 5}));
  write_png(folder.path("rgba.png"), {1, 1, {1, 2, 3, 4}}, PNG_COLOR_TYPE_RGB_ALPHA);
  EXPECT_EQ(read_rgb(folder.path("rgba.png")).values, (std::vector<uint8_t>{1, 2, 3}));
}

TEST(ImageFile, JpegComesBackWithinItsCompression) {
  const TemporaryFolder folder;
  const Picture written = gradient(16, 24, 3);
  write_jpeg(folder.path("a.jpg"), written);
  const Pixels read = read_rgb(folder.path("a.jpg"));
  ASSERT_EQ(read.values.size(), written.values.size());
  EXPECT_EQ(read.height, 16);
  for (size_t i = 0; i < read.values.size(); ++i)
    EXPECT_LE(std::abs(int{read.values[i]} - int{written.values[i]}), 3) << "value " << i;
}

TEST(ImageFile, LabelIdsAreGreyValues) {
  const TemporaryFolder folder;
  write_png(folder.path("a.png"), {2, 2, {0, 11, 3, 255}}, PNG_COLOR_TYPE_GRAY);
  const Pixels read = read_label_ids(folder.path("a.png"));
  EXPECT_EQ(read.channels, 1);
  EXPECT_EQ(read.values, (std::vector<uint8_t>{0, 11, 3, 255}));
}

TEST(ImageFile, LabelIdsArePaletteIndicesNotTheirColours) {
  const TemporaryFolder folder;
  write_png(folder.path("a.png"), {1, 3, {0, 7, 11}}, PNG_COLOR_TYPE_PALETTE);
  EXPECT_EQ(read_label_ids(folder.path("a.png")).values, (std::vector<uint8_t>{0, 7, 11}));
  write_png(folder.path("packed.png"), {1, 2, {0x3b}}, PNG_COLOR_TYPE_PALETTE, 4);
  EXPECT_EQ(read_label_ids(folder.path("packed.png")).values, (std::vector<uint8_t>{3, 11}));
  write_png(folder.path("grey4.png"), {1, 2, {0x3b}}, PNG_COLOR_TYPE_GRAY, 4);
  EXPECT_EQ(read_label_ids(folder.path("grey4.png")).values, (std::vector<uint8_t>{3, 11}));
}

TEST(ImageFile, ValuesOf16BitsThatFitStayAndOfOthersTheHighestBitsAreRead) {
  const TemporaryFolder folder;
  const std::string file = folder.path("deep.png");
  const auto read = [&](const std::vector<uint8_t>& stored, int colour, int width) {
    write_png(file, {1, width, stored}, colour, 16);
    return read_rgb(file);
  };
  const Pixels full = read({0xab, 0xcd, 0x00, 0x07}, PNG_COLOR_TYPE_GRAY, 2);
  EXPECT_EQ(full.values, (std::vector<uint8_t>{0xab, 0xab, 0xab, 0, 0, 0}));
  EXPECT_TRUE(has(full.remark, "the highest 8 are read")) << full.remark;
  const Pixels fitting = read({0, 0xcd, 0, 7}, PNG_COLOR_TYPE_GRAY, 2);
  EXPECT_EQ(fitting.values, (std::vector<uint8_t>{0xcd, 0xcd, 0xcd, 7, 7, 7}));
  EXPECT_TRUE(has(fitting.remark, "all of which fit into 8")) << fitting.remark;
  EXPECT_TRUE(has(read({0x0f, 0xff, 0, 0}, PNG_COLOR_TYPE_GRAY, 2).remark, "--white"));
  EXPECT_EQ(read({1, 0, 2, 0, 3, 0, 9, 9}, PNG_COLOR_TYPE_RGB_ALPHA, 1).values,
            (std::vector<uint8_t>{1, 2, 3}));
  write_png(file, {1, 2, {0, 3, 0, 255}}, PNG_COLOR_TYPE_GRAY, 16);
  EXPECT_EQ(read_label_ids(file).values, (std::vector<uint8_t>{3, 255}));
  write_png(file, {1, 2, {0, 3, 1, 0}}, PNG_COLOR_TYPE_GRAY, 16);
  EXPECT_TRUE(has(error_of(file, read_label_ids), "expected 16-bit ids of at most 255, got 256"));
}

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ImageFile, AWarningThatCostsNoPixelIsARemark) {
  const TemporaryFolder folder;
  const std::string file = folder.path("a.jpg");
  write_jpeg(file, gradient(40, 50, 3));
  const std::string whole = bytes_of(file);
  const Pixels expected = read_rgb(file);
  EXPECT_EQ(expected.remark, "");
  const size_t scan = whole.find("\xff\xda"), tables = whole.find("\xff\xdb"), jfif = whole.find("JFIF");
  const auto changed = [&](size_t place, size_t count, const std::string& by) {
    std::string bytes = whole;
    return bytes.replace(place, count, by);
  };
  const std::string zero(1, '\0'), padding(200, '\0');
  for (const auto& [bytes, said] :
       {std::pair(changed(scan + 12, 1, zero), "Invalid SOS parameters"),  // a phone's
        {changed(jfif + 5, 1, "\x07"), "unknown JFIF revision"},
        {changed(whole.size() - 2, 2, ""), "Premature end of JPEG file"},
        {changed(whole.size() - 2, 0, padding), "extraneous bytes"},
        {changed(tables, 0, "maker's notes"), "extraneous bytes"}}) {
    test::write_bytes(file, bytes);
    const Pixels read = read_rgb(file);
    EXPECT_EQ(read.values, expected.values) << said;
    EXPECT_TRUE(has(read.remark, said)) << read.remark;
  }
  // Bytes that are left over behind the pixels, pixels that are missing, scans that may be.
  test::write_bytes(file, changed(whole.size() - 2, 0, std::string(200, 'x')));
  EXPECT_TRUE(has(error_of(file, read_rgb), "extraneous bytes"));
  test::write_bytes(file, changed(whole.size() - 40, 38, ""));
  EXPECT_TRUE(has(error_of(file, read_rgb), "premature end of data"));
  write_jpeg(file, gradient(40, 50, 3), /*progressive=*/true);
  test::write_bytes(file, bytes_of(file).substr(0, std::filesystem::file_size(file) - 2));
  EXPECT_TRUE(has(error_of(file, read_rgb), "Premature end of JPEG file"));
}

TEST(ImageFile, ColourLabelsAreRefused) {
  const TemporaryFolder folder;
  write_png(folder.path("rgb.png"), gradient(2, 2, 3), PNG_COLOR_TYPE_RGB);
  EXPECT_TRUE(has(error_of(folder.path("rgb.png"), read_label_ids), "colour image"));
  write_jpeg(folder.path("labels.jpg"), gradient(8, 8, 3));
  EXPECT_TRUE(has(error_of(folder.path("labels.jpg"), read_label_ids), "expected labels as PNG"));
}

TEST(ImageFile, DamagedFilesAreErrorsThatNameTheFile) {
  const TemporaryFolder folder;
  const std::string png = folder.path("cut.png"), jpeg = folder.path("cut.jpg");
  for (const double fraction : {0.99, 0.6, 0.02, 0.0}) {
    write_png(png, gradient(40, 40, 3), PNG_COLOR_TYPE_RGB);
    test::truncate(png, fraction);
    EXPECT_TRUE(has(error_of(png, read_rgb), png)) << "PNG cut to " << fraction;
    write_jpeg(jpeg, gradient(40, 40, 3));
    test::truncate(jpeg, fraction);
    EXPECT_TRUE(has(error_of(jpeg, read_rgb), jpeg)) << "JPEG cut to " << fraction;
  }
  test::write_bytes(folder.path("text.jpg"), "not a picture");
  EXPECT_TRUE(has(error_of(folder.path("text.jpg"), read_rgb), "text.jpg"));
  EXPECT_TRUE(has(error_of(folder.path("absent.jpg"), read_rgb), "No such file"));
  EXPECT_TRUE(has(error_of(folder.path(), read_rgb), folder.path()));
}

TEST(ImageFile, APipeIsRefusedAndNotWaitedFor) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("pipe.png").c_str(), 0600), 0);
  EXPECT_TRUE(has(error_of(folder.path("pipe.png"), read_rgb), "not an ordinary file"));
}

TEST(ImageFile, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  const TemporaryFolder folder;
  write_png(folder.path("wide.png"), {1, 20000, std::vector<uint8_t>(20000)}, PNG_COLOR_TYPE_GRAY);
  EXPECT_TRUE(
      has(error_of(folder.path("wide.png"), read_label_ids), "1x20000; cut image and labels into tiles"));
}

// Pictures are read as they were written, and label maps keep their ids.
class WritePng : public ::testing::Test {
 protected:
  std::string file_ =
      (std::filesystem::temp_directory_path() / ("bnlab-png-" + std::to_string(::getpid()))).string();
  ~WritePng() override { std::filesystem::remove(file_); }
};

TEST_F(WritePng, ColoursComeBack) {
  const Pixels written{2, 3, 3, {0, 1, 2, 3, 4, 5, 6, 7, 8, 250, 251, 252, 253, 254, 255, 9, 9, 9}};
  bnlab::write_png(file_, written);
  const Pixels read = read_rgb(file_);
  EXPECT_EQ(read.height, 2);
  EXPECT_EQ(read.width, 3);
  EXPECT_EQ(read.values, written.values);
}

TEST_F(WritePng, ClassIdsComeBackAndHaveColours) {
  bnlab::write_png(file_, {1, 4, 1, {0, 1, 15, 255}});
  EXPECT_EQ(read_label_ids(file_).values, (std::vector<uint8_t>{0, 1, 15, 255}));
  EXPECT_EQ(read_rgb(file_).values, (std::vector<uint8_t>{0, 0, 0, 128, 0, 0, 192, 128, 128, 224, 224, 192}));
}

TEST_F(WritePng, SaysWhereItCannotWrite) {
  EXPECT_THROW(bnlab::write_png("/nowhere/at/all.png", {1, 1, 1, {0}}), Error);
}

}  // namespace
}  // namespace bnlab::image_file_test

#else

namespace bnlab::image_file_test {
namespace {

TEST(ImageFile, ABuildWithoutDecodersSaysWhatToInstall) {
  for (const auto read : {read_rgb, read_label_ids}) {
    try {
      read("photo.jpg");
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::environment);
      EXPECT_NE(std::string(error.what()).find("libjpeg-dev"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace bnlab::image_file_test

#endif
