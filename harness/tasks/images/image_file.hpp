// Photographs and label images in files, read and written: JPEG through libjpeg, PNG through libpng. Both are
// optional when bnlab is built (macro BNLAB_WITH_IMAGES); without them every call throws
// Error(environment), which says what to install. A file that is damaged in any way is FaultyData
// with its name, never a partly grey picture. So is one of more than 16384 pixels a side or 100 million in
// all, before memory for it is taken. What costs no pixel is a remark.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/tasks/images/pixels.hpp"

namespace bnlab {

// A JPEG or PNG (told apart by its first bytes) as 8-bit RGB, turned by the orientation of its EXIF data;
// transparency is dropped. Values of 16 bits stay what they are where they fit, else their highest 8 bits are
// read.
Pixels read_rgb(const std::string& file);

// A PNG as one id per pixel: the grey value, or the palette's index. Colour, transparency and ids above 255
// are refused, with the command that makes ids of the folder's files, or with the cure that a task knows.
Pixels read_label_ids(const std::string& file);
Pixels read_label_ids_of_task(const std::string& file, const std::string& cure);

// A label PNG of any kind.
struct LabelFile {
  // ids: as read_label_ids reads them. wide_ids: grey values with transparency, which is dropped, or of 16
  // bits, which must be at most 255. colours: red, green, blue.
  enum class Kind { ids, wide_ids, colours };
  Kind kind = Kind::ids;
  Pixels pixels = {};                                // one channel, or three
  std::vector<std::array<uint8_t, 3>> palette = {};  // the colours of ids, where the file has some
};
LabelFile read_label_file(const std::string& file);

// The colour of a class, red, green, blue, by the rule of the PASCAL VOC data set: the bits of the id, lowest
// three first, become the highest bits of red, green and blue. 0 is black, 255 the colour that void has
// there.
std::array<uint8_t, 3> class_colour(uint8_t id);

// Writes a picture as PNG. One channel: ids with the palette of class_colour, which is how label files of
// segmentation data look; three: red, green, blue. Throws Error (environment) where the file cannot be
// written, or this build has no libpng.
void write_png(const std::string& file, const Pixels& pixels);

}  // namespace bnlab
