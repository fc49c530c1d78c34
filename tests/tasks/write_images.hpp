// Image files that tests write themselves, in a folder of their own that goes away with the test.
#pragma once

#include <jpeglib.h>
#include <png.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace bnlab::test {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "bnlab-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make " + name);
    path_ = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path(const std::string& name = "") const {
    const auto full = path_ / name;
    std::filesystem::create_directories(full.parent_path());
    return full.string();
  }

 private:
  std::filesystem::path path_;
};

struct Picture {
  int height = 0;
  int width = 0;
  std::vector<uint8_t> values;  // [height, width, channels]
};

// `colour` is libpng's colour type; a palette has 256 entries, entry i the grey 255 - i. `values` holds
// whole rows as they are stored (two bytes per value at a depth of 16, packed below 8).
inline void write_png(const std::string& file, const Picture& picture, int colour, int depth = 8) {
  std::FILE* out = std::fopen(file.c_str(), "wb");
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, out);
  png_set_IHDR(png, info, static_cast<png_uint_32>(picture.width), static_cast<png_uint_32>(picture.height),
               depth, colour, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  if (colour == PNG_COLOR_TYPE_PALETTE) {
    for (int i = 0; i < (1 << depth); ++i) {
      const auto grey = static_cast<png_byte>(255 - i);
      palette.push_back({grey, grey, grey});
    }
    png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  png_write_info(png, info);
  const size_t row_bytes = picture.values.size() / static_cast<size_t>(picture.height);
  for (size_t y = 0; y < static_cast<size_t>(picture.height); ++y)
    png_write_row(png, picture.values.data() + y * row_bytes);
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  std::fclose(out);
}

// Quality 100 without chroma subsampling: smooth pictures come back within a few grey levels.
inline void write_jpeg(const std::string& file, const Picture& picture, bool progressive = false) {
  std::FILE* out = std::fopen(file.c_str(), "wb");
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  jpeg_stdio_dest(&encoder, out);
  encoder.image_width = static_cast<JDIMENSION>(picture.width);
  encoder.image_height = static_cast<JDIMENSION>(picture.height);
  encoder.input_components = 3;
  encoder.in_color_space = JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, 100, TRUE);
  encoder.comp_info[0].h_samp_factor = encoder.comp_info[0].v_samp_factor = 1;
  if (progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    auto* row = const_cast<JSAMPLE*>(picture.values.data()) + encoder.next_scanline * encoder.image_width * 3;
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  std::fclose(out);
}

inline void write_bytes(const std::string& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

inline void truncate(const std::string& file, double fraction) {
  const auto size = static_cast<double>(std::filesystem::file_size(file));
  std::filesystem::resize_file(file, static_cast<uintmax_t>(size * fraction));
}

// EXIF data with an orientation as their second tag, big-endian or little-endian.
inline std::string exif_data(int orientation, bool little = false) {
  const auto number = [&](uint32_t value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * (little ? i : bytes - 1 - i)));
    return text;
  };
  const std::string make = number(0x010f, 2) + number(2, 2) + number(2, 4) + std::string("x\0\0\0", 4);
  const std::string tag = number(0x0112, 2) + number(3, 2) + number(1, 4) +
                          number(static_cast<uint32_t>(orientation), 2) + number(0, 2);
  return (little ? "II" : "MM") + number(42, 2) + number(8, 4) + number(2, 2) + make + tag + number(0, 4);
}

// Puts EXIF data behind the start of a JPEG, or behind the header of a PNG.
inline void add_exif(const std::string& file, const std::string& exif) {
  std::ifstream in(file, std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(in), {}};
  const auto big = [](uint64_t value, int bytes) {
    std::string text;
    for (int i = bytes; i-- > 0;) text += static_cast<char>(value >> (8 * i));
    return text;
  };
  if (all.starts_with("\xff\xd8")) {
    const std::string data = std::string("Exif\0\0", 6) + exif;
    all.insert(2, "\xff\xe1" + big(data.size() + 2, 2) + data);
  } else {
    const std::string chunk = "eXIf" + exif;
    uint32_t crc = ~0u;
    for (const char byte : chunk) {
      crc ^= static_cast<uint8_t>(byte);
      for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
    }
    all.insert(33, big(exif.size(), 4) + chunk + big(~crc, 4));
  }
  write_bytes(file, all);
}

}  // namespace bnlab::test
