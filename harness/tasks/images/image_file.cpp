// libjpeg and libpng report errors by longjmp. So each library is driven by one function whose locals
// need no destructor; buffers and the file belong to the caller.
#include "harness/tasks/images/image_file.hpp"

#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/tasks/data_check.hpp"

namespace bnlab {

std::array<uint8_t, 3> class_colour(uint8_t id) {
  std::array<uint8_t, 3> colour{};
  for (int bit = 7; id != 0; --bit, id = static_cast<uint8_t>(id >> 3))
    for (int c = 0; c < 3; ++c)
      colour[static_cast<size_t>(c)] |= static_cast<uint8_t>(((id >> c) & 1) << bit);
  return colour;
}

}  // namespace bnlab

#ifdef BNLAB_WITH_IMAGES

#include <png.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>

#include <jpeglib.h>  // needs cstdio before it

#include <jerror.h>  // needs jpeglib before it

namespace bnlab {
namespace {

constexpr int64_t kLargestSide = 16384, kMostPixels = 100'000'000;
constexpr int64_t kLargestJpeg = 6 * kMostPixels;  // bytes, with whatever stands beside the pixels

constexpr const char* kDamaged = "files that cannot be read";
constexpr const char* kHeic = "a HEIC file";

[[noreturn]] void fail(const std::string& file, const std::string& message) {
  throw FaultyData(kDamaged, file + ": " + message + "; fetch or convert the file again");
}

constexpr const char* kDecoderRemark = "make the decoder warn of what costs no pixel: ";
constexpr const char* kHighestBits = "have 16 bits per value, of which the highest 8 are read";
constexpr const char* kFittingValues =
    "have 16 bits per value, all of which fit into 8 and are read as they are";
constexpr const char* kDarkValues =
    "have 16 bits per value, but none above a sixteenth of the range: the highest 8 bits keep little of it; "
    "where white is a smaller number, scripts/convert_images.py --white NUMBER FOLDER keeps more";

std::string folder_around(const std::string& file) {
  const size_t end = file.rfind('/');
  return end == std::string::npos ? "." : file.substr(0, end);
}

// Photographs of a kind that a script makes usable.
[[noreturn]] void fail_as_other(const std::string& file, const std::string& what) {
  throw FaultyData("photographs to convert",
                   file + ": expected a JPEG or PNG of 8 bits, grey or RGB, got " + what + "; " +
                       (what == kHeic ? "export all of them as JPEG, no script here reads that format"
                                      : "convert all of them, " +
                                            source_command(".venv/bin/python scripts/convert_images.py",
                                                           {folder_around(file)})));
}

// Labels that `bnlab labels` makes usable.
[[noreturn]] void fail_as_labels(const std::string& file, const std::string& what, const std::string& cure) {
  const std::string folder = folder_around(file);
  throw FaultyData(
      "labels that are no ids",
      file + ": expected one class id per pixel, 8 bits, grey or palette; got " + what + "; " +
          (cure.empty() ? "this makes ids of all in the folder, or asks which colour is which id: " +
                              shell_command("bnlab labels", {folder, folder + "_ids"}) +
                              ", which then takes the folder's place"
                        : cure));
}

// Called before anything of that size is allocated.
void check_size(const std::string& file, int64_t height, int64_t width) {
  const bool fits_sides = height <= kLargestSide && width <= kLargestSide;
  if (height < 1 || width < 1) fail(file, "has no pixels");
  if (!fits_sides || height * width > kMostPixels) {
    throw FaultyData("images that are too large",
                     file + ": expected at most " +
                         (fits_sides ? std::to_string(kMostPixels) + " pixels"
                                     : std::to_string(kLargestSide) + " pixels a side") +
                         ", got " + std::to_string(height) + "x" + std::to_string(width) +
                         "; cut image and labels into tiles alike, or reduce both");
  }
}

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

File open_file(const std::string& file) {
  struct stat about{};
  if (stat(file.c_str(), &about) == 0 && !S_ISREG(about.st_mode))  // opening a pipe waits for a writer
    fail(file, "is not an ordinary file");
  File opened(std::fopen(file.c_str(), "rb"));
  if (!opened) fail(file, std::string("cannot be opened (") + std::strerror(errno) + ")");
  return opened;
}

bool is_png(std::FILE* file) {
  std::array<png_byte, 8> start{};
  const size_t count = std::fread(start.data(), 1, start.size(), file);
  std::rewind(file);
  return count == start.size() && png_sig_cmp(start.data(), 0, start.size()) == 0;
}

// The format of a file that is neither JPEG nor PNG, by its first bytes; "" where they tell none.
std::string other_format(std::FILE* file) {
  std::array<char, 12> bytes{};
  const size_t count = std::fread(bytes.data(), 1, bytes.size(), file);
  std::rewind(file);
  const std::string start(bytes.data(), count);
  const auto has = [&](size_t place, const std::string& text) {
    return start.size() >= place + text.size() && start.compare(place, text.size(), text) == 0;
  };
  if (has(0, std::string("II*\0", 4)) || has(0, std::string("MM\0*", 4))) return "a TIFF file";
  if (has(0, "RIFF") && has(8, "WEBP")) return "a WebP file";
  if (has(0, "GIF8")) return "a GIF file";
  if (has(0, "BM")) return "a BMP file";
  if (has(4, "ftypavif")) return "an AVIF file";
  if (has(4, "ftyp")) return kHeic;
  return "";
}

// ---- JPEG

struct JpegErrors {
  jpeg_error_mgr manager;  // first, so that a pointer to it is one to the whole
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

void jpeg_failed(j_common_ptr decoder) {
  auto* errors = reinterpret_cast<JpegErrors*>(decoder->err);
  decoder->err->format_message(decoder, errors->message.data());
  std::longjmp(errors->back, 1);
}

// Whether a warning means pixels that libjpeg would make up. If not, the data of all pixels are there.
bool costs_pixels(const jpeg_decompress_struct& decoder) {
  const auto& warning = *decoder.err;
  const bool before_pixels = decoder.input_scan_number == 0;
  switch (warning.msg_code) {
    case JWRN_NOT_SEQUENTIAL:  // a scan header as for a progressive file, which nothing else reads
    case JWRN_JFIF_MAJOR:
    case JWRN_ADOBE_XFORM:
      return false;
    case JWRN_JPEG_EOF:  // at the end of the pixels; before it, another warning follows
      return before_pixels || decoder.progressive_mode || decoder.arith_code ||
             decoder.comps_in_scan < decoder.num_components;
    case JWRN_EXTRANEOUS_DATA: {  // behind the pixels: left over of damaged data, unless it is padding
      const auto count = static_cast<size_t>(warning.msg_parm.i[0]);
      const JOCTET* end = decoder.src->next_input_byte;
      return !before_pixels && std::any_of(end - count, end, [](JOCTET byte) { return byte != 0; });
    }
    default:
      return true;
  }
}

void jpeg_message(j_common_ptr decoder, int level) {
  if (level >= 0) return;
  if (costs_pixels(*reinterpret_cast<jpeg_decompress_struct*>(decoder))) jpeg_failed(decoder);
  auto* errors = reinterpret_cast<JpegErrors*>(decoder->err);
  decoder->err->format_message(decoder, errors->message.data());
}

constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr unsigned kLongestMarker = 0xFFFF;

int orientation_of(const jpeg_decompress_struct& decoder) {
  constexpr std::array<uint8_t, 6> kExif = {'E', 'x', 'i', 'f', 0, 0};
  for (const jpeg_marker_struct* marker = decoder.marker_list; marker != nullptr; marker = marker->next) {
    const std::span<const uint8_t> data(marker->data, marker->data_length);
    if (marker->marker == kExifMarker && data.size() >= kExif.size() &&
        std::equal(kExif.begin(), kExif.end(), data.begin())) {
      return exif_orientation(data.subspan(kExif.size()));
    }
  }
  return 1;
}

// Fills `pixels`; false if the decoder failed. Its last message is in `errors`.
bool decode_jpeg(const std::vector<unsigned char>& bytes, jpeg_decompress_struct& decoder, JpegErrors& errors,
                 Pixels& pixels, const std::string& name) {
  if (setjmp(errors.back) != 0) return false;
  jpeg_create_decompress(&decoder);
  jpeg_mem_src(&decoder, bytes.data(), bytes.size());
  jpeg_save_markers(&decoder, kExifMarker, kLongestMarker);
  jpeg_read_header(&decoder, TRUE);
  pixels.orientation = orientation_of(decoder);
  if (decoder.jpeg_color_space == JCS_CMYK || decoder.jpeg_color_space == JCS_YCCK)
    fail_as_other(name, "CMYK");
  check_size(name, decoder.image_height, decoder.image_width);
  decoder.out_color_space = JCS_RGB;
  jpeg_start_decompress(&decoder);
  pixels.height = decoder.output_height;
  pixels.width = decoder.output_width;
  pixels.channels = 3;
  pixels.values.resize(static_cast<size_t>(pixels.height * pixels.width * 3));
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = pixels.values.data() + static_cast<size_t>(decoder.output_scanline * pixels.width * 3);
    jpeg_read_scanlines(&decoder, &row, 1);
  }
  jpeg_finish_decompress(&decoder);
  return true;
}

std::vector<unsigned char> bytes_of(std::FILE* file, const std::string& name) {
  struct stat about{};
  if (fstat(fileno(file), &about) != 0 || about.st_size > kLargestJpeg)
    fail(name, "is larger than any JPEG of " + std::to_string(kMostPixels) + " pixels");
  std::vector<unsigned char> bytes(static_cast<size_t>(about.st_size));
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
  return bytes;
}

Pixels read_jpeg(std::FILE* file, const std::string& name) {
  const std::vector<unsigned char> bytes = bytes_of(file, name);
  JpegErrors errors{};
  jpeg_decompress_struct decoder{};
  decoder.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = jpeg_failed;
  errors.manager.emit_message = jpeg_message;
  const std::unique_ptr<jpeg_decompress_struct, decltype(&jpeg_destroy_decompress)> owner(
      &decoder, &jpeg_destroy_decompress);
  Pixels pixels;
  if (!decode_jpeg(bytes, decoder, errors, pixels, name))
    fail(name, std::string("cannot be read as JPEG (") + errors.message.data() + ")");
  if (errors.message[0] != '\0') pixels.remark = kDecoderRemark + std::string(errors.message.data());
  const int orientation = pixels.orientation;
  return upright(std::move(pixels), orientation);
}

// ---- PNG

void png_failed(png_structp png, png_const_charp message) {
  auto* text = static_cast<std::array<char, 256>*>(png_get_error_ptr(png));
  std::snprintf(text->data(), text->size(), "%s", message);
  png_longjmp(png, 1);
}

void png_ignore(png_structp, png_const_charp) {}  // warnings: colour profiles and the like

enum class Wanted { photograph, ids, labels };

struct PngReader {
  std::array<char, 256> message{};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &message, png_failed, png_ignore);
  png_infop info = png_create_info_struct(png);
  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

void convert_to_rgb(PngReader& reader, png_byte colour) {
  if (colour == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(reader.png);
  if (colour == PNG_COLOR_TYPE_GRAY || colour == PNG_COLOR_TYPE_GRAY_ALPHA) {
    png_set_expand_gray_1_2_4_to_8(reader.png);
    png_set_gray_to_rgb(reader.png);
  }
  png_set_strip_alpha(reader.png);
}

// The chunk eXIf may stand before the pixels or behind them.
int orientation_of(const PngReader& reader) {
#ifdef PNG_eXIf_SUPPORTED
  png_uint_32 size = 0;
  png_bytep data = nullptr;
  if (png_get_eXIf_1(reader.png, reader.info, &size, &data) != 0) return exif_orientation({data, size});
#endif
  return 1;
}

// What a file is decoded to, and into.
struct PngRequest {
  const std::string& name;
  Wanted wanted = Wanted::photograph;
  const std::string& cure;  // for labels that are no ids
  LabelFile& read;
  std::vector<png_bytep> rows{};
};

void keep_palette(PngReader& reader, std::vector<std::array<uint8_t, 3>>& palette) {
  png_colorp colours = nullptr;
  int count = 0;
  png_get_PLTE(reader.png, reader.info, &colours, &count);
  for (const png_color& colour : std::span(colours, static_cast<size_t>(count)))
    palette.push_back({colour.red, colour.green, colour.blue});
}

// False if the decoder failed. What needs a destructor is the caller's.
bool decode_png(std::FILE* file, PngReader& reader, PngRequest& request) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  Pixels& pixels = request.read.pixels;
  png_init_io(reader.png, file);
  png_read_info(reader.png, reader.info);
  pixels.height = png_get_image_height(reader.png, reader.info);
  pixels.width = png_get_image_width(reader.png, reader.info);
  check_size(request.name, pixels.height, pixels.width);
  const png_byte colour = png_get_color_type(reader.png, reader.info);
  const bool deep = png_get_bit_depth(reader.png, reader.info) == 16;
  const bool transparent = colour == PNG_COLOR_TYPE_GRAY_ALPHA;
  const bool grey = transparent || colour == PNG_COLOR_TYPE_GRAY, indexed = colour == PNG_COLOR_TYPE_PALETTE;
  if (request.wanted == Wanted::ids && (transparent || !(grey || indexed))) {
    fail_as_labels(request.name, grey ? "grey with transparency" : "a colour image", request.cure);
  } else if (request.wanted == Wanted::labels && deep && !grey) {
    throw FaultyData("labels of too many colours", request.name +
                                                       ": expected colours of 8 bits, got 16; export it "
                                                       "again with 8 bits per value");
  } else if (request.wanted == Wanted::photograph || !(grey || indexed)) {
    request.read.kind = LabelFile::Kind::colours;
    convert_to_rgb(reader, colour);
  } else {
    request.read.kind = deep || transparent ? LabelFile::Kind::wide_ids : LabelFile::Kind::ids;
    png_set_strip_alpha(reader.png);
    if (indexed) keep_palette(reader, request.read.palette);
  }
  png_set_packing(reader.png);  // 1, 2 and 4 bits become bytes, the values stay
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  // Of values of 16 bits each is two: its high and its low byte.
  pixels.channels = static_cast<int64_t>(png_get_rowbytes(reader.png, reader.info)) / pixels.width;
  const int64_t row_bytes = pixels.width * pixels.channels;
  pixels.values.resize(static_cast<size_t>(pixels.height * row_bytes));
  request.rows.resize(static_cast<size_t>(pixels.height));
  for (int64_t y = 0; y < pixels.height; ++y)
    request.rows[static_cast<size_t>(y)] = pixels.values.data() + y * row_bytes;
  png_read_image(reader.png, request.rows.data());
  png_read_end(reader.png, reader.info);
  return true;
}

// Values of 16 bits that fit into 8 stay what they are. Of those of photographs that do not fit the highest 8
// bits remain.
void make_eight_bits(LabelFile& read, const std::string& name) {
  Pixels& pixels = read.pixels;
  std::vector<uint8_t> high, low;
  high.reserve(pixels.values.size() / 2);
  low.reserve(pixels.values.size() / 2);
  for (size_t i = 0; i + 1 < pixels.values.size(); i += 2) {
    high.push_back(pixels.values[i]);
    low.push_back(pixels.values[i + 1]);
  }
  const auto highest = std::ranges::max_element(high);
  const bool fit = *highest == 0;
  if (read.kind != LabelFile::Kind::colours && !fit) {
    throw FaultyData("ids above 255",
                     name + ": expected 16-bit ids of at most 255, got " +
                         std::to_string(256 * *highest + low[static_cast<size_t>(highest - high.begin())]) +
                         "; write the ids of classes into it");
  }
  pixels.channels /= 2;
  pixels.remark = fit ? kFittingValues : *highest < 16 ? kDarkValues : kHighestBits;
  pixels.values = fit ? std::move(low) : std::move(high);
}

LabelFile read_png(std::FILE* file, const std::string& name, Wanted wanted, const std::string& cure = "") {
  PngReader reader;
  LabelFile read;
  PngRequest request{.name = name, .wanted = wanted, .cure = cure, .read = read};
  if (!decode_png(file, reader, request))
    fail(name, std::string("cannot be read as PNG (") + reader.message.data() + ")");
  if (png_get_bit_depth(reader.png, reader.info) == 16) make_eight_bits(read, name);
  if (wanted == Wanted::photograph) read.pixels = upright(std::move(read.pixels), orientation_of(reader));
  return read;
}

// False if the disk or libpng refuses.
bool encode(std::FILE* file, png_structp png, png_infop info, const Pixels& pixels,
            const png_color* palette) {
  if (setjmp(png_jmpbuf(png)) != 0) return false;
  const bool ids = pixels.channels == 1;
  png_init_io(png, file);
  png_set_IHDR(png, info, static_cast<png_uint_32>(pixels.width), static_cast<png_uint_32>(pixels.height), 8,
               ids ? PNG_COLOR_TYPE_PALETTE : PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (ids) png_set_PLTE(png, info, palette, 256);
  png_write_info(png, info);
  for (int64_t y = 0; y < pixels.height; ++y)
    png_write_row(png, pixels.values.data() + y * pixels.width * pixels.channels);
  png_write_end(png, info);
  return true;
}

void require_png(std::FILE* opened, const std::string& file) {
  if (!is_png(opened)) {
    throw FaultyData("labels that are no PNG",
                     file +
                         ": expected labels as PNG, got another format; export them again as PNG: JPEG "
                         "changes the ids of pixels, so that no conversion brings them back");
  }
}

}  // namespace

Pixels read_rgb(const std::string& file) {
  const File opened = open_file(file);
  if (is_png(opened.get())) return read_png(opened.get(), file, Wanted::photograph).pixels;
  if (const std::string other = other_format(opened.get()); !other.empty()) fail_as_other(file, other);
  return read_jpeg(opened.get(), file);
}

Pixels read_label_ids(const std::string& file) {
  return read_label_ids_of_task(file, "");
}

Pixels read_label_ids_of_task(const std::string& file, const std::string& cure) {
  const File opened = open_file(file);
  require_png(opened.get(), file);
  return read_png(opened.get(), file, Wanted::ids, cure).pixels;
}

LabelFile read_label_file(const std::string& file) {
  const File opened = open_file(file);
  require_png(opened.get(), file);
  return read_png(opened.get(), file, Wanted::labels);
}

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
  if (!written)
    throw Error(Error::Kind::environment, file + ": cannot be written (" + std::strerror(errno) + ")");
}

}  // namespace bnlab

#else

namespace bnlab {
namespace {

[[noreturn]] void lacks_libraries(const std::string& file, const std::string& act) {
  throw Error(Error::Kind::environment,
              file + ": this build of bnlab cannot " + act +
                  " images; install the Debian packages libjpeg-dev and libpng-dev (apt-get install "
                  "libjpeg-dev libpng-dev), then configure and build again");
}

}  // namespace

Pixels read_rgb(const std::string& file) {
  lacks_libraries(file, "decode");
}

Pixels read_label_ids(const std::string& file) {
  lacks_libraries(file, "decode");
}

Pixels read_label_ids_of_task(const std::string& file, const std::string&) {
  lacks_libraries(file, "decode");
}

LabelFile read_label_file(const std::string& file) {
  lacks_libraries(file, "decode");
}

void write_png(const std::string& file, const Pixels&) {
  lacks_libraries(file, "write");
}

}  // namespace bnlab

#endif
