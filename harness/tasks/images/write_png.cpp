// libpng reports errors by longjmp, so it is driven by one function whose locals need no destructor.
#include "harness/tasks/images/write_png.hpp"

#include "harness/error.hpp"

namespace bnlab {

std::array<uint8_t, 3> class_colour(uint8_t id) {
  std::array<uint8_t, 3> colour{};
  for (int bit = 7; id != 0; --bit, id = static_cast<uint8_t>(id >> 3)) {
    for (int c = 0; c < 3; ++c) {
      colour[static_cast<size_t>(c)] |= static_cast<uint8_t>(((id >> c) & 1) << bit);
    }
  }
  return colour;
}

}  // namespace bnlab

#ifdef BNLAB_WITH_IMAGES

#include <png.h>

#include <cerrno>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

namespace bnlab {
namespace {

// False if the disk or libpng refuses.
bool encode(std::FILE* file, png_structp png, png_infop info, const Pixels& pixels,
            const png_color* palette) {
  if (setjmp(png_jmpbuf(png)) != 0) {
    return false;
  }
  const bool ids = pixels.channels == 1;
  png_init_io(png, file);
  png_set_IHDR(png, info, static_cast<png_uint_32>(pixels.width), static_cast<png_uint_32>(pixels.height), 8,
               ids ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (ids) {
    png_set_PLTE(png, info, palette, 256);
  }
  png_write_info(png, info);
  for (int64_t y = 0; y < pixels.height; ++y) {
    png_write_row(png, pixels.values.data() + y * pixels.width * pixels.channels);
  }
  png_write_end(png, info);
  return true;
}

}  // namespace

void write_png(const std::string& file, const Pixels& pixels) {
  std::vector<png_color> palette(256);
  for (size_t id = 0; id < palette.size(); ++id) {
    const auto [red, green, blue] = class_colour(static_cast<uint8_t>(id));
    palette[id] = {red, green, blue};
  }
  std::FILE* opened = std::fopen(file.c_str(), "wb");
  bool written = false;
  if (opened != nullptr) {
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
    png_infop info = png_create_info_struct(png);
    written = encode(opened, png, info, pixels, palette.data());
    png_destroy_write_struct(&png, &info);
    written = std::fclose(opened) == 0 && written;
  }
  if (!written) {
    throw Error(Error::Kind::environment, file + ": cannot be written (" + std::strerror(errno) + ")");
  }
}

}  // namespace bnlab

#else

namespace bnlab {

void write_png(const std::string& file, const Pixels&) {
  throw Error(Error::Kind::environment,
              file +
                  ": this build of bnlab cannot write images; install the Debian packages libjpeg-dev and "
                  "libpng-dev (apt-get install libjpeg-dev libpng-dev), then configure and build again");
}

}  // namespace bnlab

#endif
