#include "harness/tasks/images/pixels.hpp"

#include <algorithm>
#include <utility>

namespace bnlab {
namespace {

constexpr size_t kHeader = 8, kEntry = 12;
constexpr uint32_t kOrientationTag = 0x0112, kShort = 3;

// Numbers of TIFF data in their order of bytes; 0 beyond their end.
struct Tiff {
  std::span<const uint8_t> bytes;
  bool little;

  uint32_t number(size_t offset, size_t size) const {
    uint32_t value = 0;
    for (size_t i = 0; i < size && offset + size <= bytes.size(); ++i)
      value |= uint32_t{bytes[offset + i]} << (8 * (little ? i : size - 1 - i));
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const uint8_t> exif) {
  if (exif.size() < kHeader || exif[0] != exif[1] || (exif[0] != 'I' && exif[0] != 'M')) return 1;
  const Tiff tiff{exif, exif[0] == 'I'};
  const size_t directory = tiff.number(4, 4), entries = tiff.number(directory, 2);
  for (size_t i = 0; tiff.number(2, 2) == 42 && i < entries; ++i) {
    const size_t entry = directory + 2 + i * kEntry;
    if (tiff.number(entry, 2) == kOrientationTag && tiff.number(entry + 2, 2) == kShort) {
      const uint32_t value = tiff.number(entry + 8, 2);
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

Pixels upright(Pixels stored, int orientation) {
  stored.orientation = orientation;
  if (orientation == 1) return stored;
  const bool exchanged = orientation >= 5;  // rows and columns
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Pixels turned = stored;
  if (exchanged) std::swap(turned.height, turned.width);
  const int64_t channels = stored.channels;
  uint8_t* to = turned.values.data();
  for (int64_t y = 0; y < turned.height; ++y) {
    for (int64_t x = 0; x < turned.width; ++x, to += channels) {
      const int64_t row = exchanged ? x : y, column = exchanged ? y : x;
      const int64_t from_row = from_below ? stored.height - 1 - row : row;
      const int64_t from_column = from_right ? stored.width - 1 - column : column;
      const uint8_t* from = stored.values.data() + (from_row * stored.width + from_column) * channels;
      std::copy(from, from + channels, to);
    }
  }
  return turned;
}

}  // namespace bnlab
