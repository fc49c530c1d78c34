// Pixels as read from a file, and how the camera was held: the tag Orientation of EXIF data, 1 to 8
// (Exif 2.32, section 4.6.4, tag 0x0112).
// Programs in which people draw labels show photographs turned by it, so photographs are turned when read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace bnlab {

struct Pixels {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> values;  // [height, width, channels]
  int orientation = 1;          // by which they were turned when they were read
  std::string remark = {};      // "have 16 bits per value, ...": what else is worth knowing
};

// Of EXIF data from their TIFF header on ("II" or "MM"). 1, as the pixels are stored, where the data are
// damaged or have no such tag.
int exif_orientation(std::span<const uint8_t> exif);

// Pixels as they are stored -> as they are to be looked at. 1: as they are; 2: mirrored left to right;
// 3: turned by 180 degrees; 4: mirrored top to bottom; 5: rows and columns exchanged; 6: turned by 90 degrees
// clockwise; 7: rows and columns exchanged about the other diagonal; 8: turned by 90 degrees anticlockwise.
Pixels upright(Pixels stored, int orientation);

}  // namespace bnlab
