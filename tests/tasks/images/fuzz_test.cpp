// Damaged image files: every one is an Error that names it, or a picture of a sound size; never a crash, and
// never a large allocation for what a header claims.
#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"
#include "harness/tasks/images/image_file.hpp"

#ifdef BNLAB_WITH_IMAGES

#include <zlib.h>

#include <fstream>
#include <iterator>
#include <optional>

#include "tests/tasks/write_images.hpp"

namespace bnlab::fuzz_test {
namespace {

using test::Picture;

constexpr int kHeight = 18, kWidth = 21;

Picture pattern(int channels, int values) {
  Picture picture{kHeight, kWidth, {}};
  for (int i = 0; i < kHeight * kWidth * channels; ++i)
    picture.values.push_back(static_cast<uint8_t>(i * i / 7 % values));
  return picture;
}

struct Format {
  const char* name;
  void (*write)(const std::string& file);
};

const Format kFormats[] = {
    {"jpeg", [](const std::string& file) { test::write_jpeg(file, pattern(3, 256)); }},
    {"progressive_jpeg", [](const std::string& file) { test::write_jpeg(file, pattern(3, 256), true); }},
    {"rgb_png", [](const std::string& file) { test::write_png(file, pattern(3, 256), PNG_COLOR_TYPE_RGB); }},
    {"grey_png", [](const std::string& file) { test::write_png(file, pattern(1, 5), PNG_COLOR_TYPE_GRAY); }},
    {"palette_png",
     [](const std::string& file) { test::write_png(file, pattern(1, 5), PNG_COLOR_TYPE_PALETTE); }},
};

class Fuzz : public ::testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    GetParam().write(file_);
    std::ifstream in(file_, std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(in), {}};
    ASSERT_GT(bytes_.size(), 100u);
    whole_ = read(bytes_);
  }
  bool is_png() const { return std::string(GetParam().name).find("png") != std::string::npos; }

  // What is read of these bytes, as an image, as ids and as labels of any kind; nothing where an error names
  // the file.
  std::vector<std::optional<Pixels>> read(const std::string& bytes) const {
    std::filesystem::remove(file_);  // some file systems wait for the disk where a file is overwritten
    test::write_bytes(file_, bytes);
    std::vector<std::optional<Pixels>> all;
    const auto read_labels = [](const std::string& file) { return read_label_file(file).pixels; };
    for (const auto reader : {read_rgb, read_label_ids, +read_labels}) {
      try {
        all.emplace_back(reader(file_));
        EXPECT_EQ(all.back()->values.size(),
                  static_cast<size_t>(all.back()->height * all.back()->width * all.back()->channels));
      } catch (const Error& error) {
        all.emplace_back();
        EXPECT_EQ(error.kind(), Error::Kind::data);
        EXPECT_EQ(std::string(error.what()).rfind(file_, 0), 0u) << error.what();
      }
    }
    return all;
  }
  // Whether what was read of changed bytes is nothing, or the picture that was written.
  void expect_nothing_or_the_same(const std::string& bytes, const std::string& change) const {
    const auto changed = read(bytes);
    for (size_t i = 0; i < changed.size(); ++i)
      EXPECT_TRUE(!changed[i] || (whole_[i] && changed[i]->values == whole_[i]->values)) << change;
  }

  test::TemporaryFolder folder_;
  std::string file_ = folder_.path("damaged");
  std::string bytes_;
  std::vector<std::optional<Pixels>> whole_;
};

std::string format_name(const ::testing::TestParamInfo<Format>& info) {
  return info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Formats, Fuzz, ::testing::ValuesIn(kFormats), format_name);

TEST_P(Fuzz, TruncatedFilesAreErrors) {
  EXPECT_TRUE(whole_[0]);
  EXPECT_EQ(whole_[1].has_value(),
            GetParam().name == std::string("grey_png") || GetParam().name == std::string("palette_png"));
  for (size_t length = 0; length < bytes_.size(); ++length)
    expect_nothing_or_the_same(bytes_.substr(0, length), "cut to " + std::to_string(length));
}

// A PNG has checksums, so that no flipped bit goes unseen; a JPEG may become another picture.
TEST_P(Fuzz, FlippedBitsAreErrorsOrPictures) {
  for (uint64_t draw = 0; draw < 1500; ++draw) {
    Stream stream(1, "flip", draw);
    std::string bytes = bytes_;
    for (int64_t flips = 1 + stream.below(2); flips > 0; --flips) {
      const auto place = static_cast<size_t>(stream.below(static_cast<int64_t>(bytes.size())));
      bytes[place] = static_cast<char>(bytes[place] ^ (1 << stream.below(8)));
    }
    if (is_png())
      expect_nothing_or_the_same(bytes, "draw " + std::to_string(draw));
    else
      read(bytes);
  }
}

TEST_P(Fuzz, OverwrittenPartsAreErrorsOrPictures) {
  for (uint64_t draw = 0; draw < 500; ++draw) {
    Stream stream(2, "overwrite", draw);
    std::string bytes = bytes_;
    const auto begin = static_cast<size_t>(stream.below(static_cast<int64_t>(bytes.size())));
    const size_t end = std::min(bytes.size(), begin + 1 + static_cast<size_t>(stream.below(40)));
    for (size_t i = begin; i < end; ++i) bytes[i] = static_cast<char>(stream.below(256));
    read(bytes);
  }
}

// Height and width as big-endian numbers of `count` bytes.
std::string big_endian(uint32_t value, int count) {
  std::string bytes;
  for (int i = count - 1; i >= 0; --i) bytes += static_cast<char>(value >> (8 * i) & 255);
  return bytes;
}

// The file with another size in its header, all else, checksums included, as it should be.
std::string claiming(const std::string& bytes, bool is_png, uint32_t height, uint32_t width) {
  std::string changed = bytes;
  if (is_png) {  // signature (8), length (4), "IHDR", width, height, 5 more bytes, checksum
    changed.replace(16, 8, big_endian(width, 4) + big_endian(height, 4));
    const auto sum = crc32(0, reinterpret_cast<const Bytef*>(changed.data()) + 12, 17);
    return changed.replace(29, 4, big_endian(static_cast<uint32_t>(sum), 4));
  }
  const size_t frame = std::min(changed.find("\xff\xc0"), changed.find("\xff\xc2"));
  return changed.replace(frame + 5, 4, big_endian(height, 2) + big_endian(width, 2));
}

TEST_P(Fuzz, HugeSizesAreRefusedBeforeAnythingIsAllocated) {
  const auto message = [&](uint32_t height, uint32_t width) {
    test::write_bytes(file_, claiming(bytes_, is_png(), height, width));
    try {
      read_rgb(file_);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message(16000, 16000).find("at most 100000000 pixels, got 16000x16000"), std::string::npos)
      << message(16000, 16000);
  EXPECT_NE(message(1, 65500).find("at most 16384 pixels a side"), std::string::npos);
  if (is_png()) {
    EXPECT_NE(message(1, 2000000000).find("damaged: "), std::string::npos);
    EXPECT_NE(message(0, 5).find("damaged: "), std::string::npos);
  }
  EXPECT_EQ(message(kHeight, kWidth), "no error");
  for (const auto& [height, width] : {std::pair(19u, 21u), {2000u, 21u}, {18u, 400u}, {1u, 1u}})
    read(claiming(bytes_, is_png(), height, width));  // too little data, or too much
}

}  // namespace
}  // namespace bnlab::fuzz_test

#endif
