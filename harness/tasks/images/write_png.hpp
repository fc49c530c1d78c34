// Writes pictures as PNG (libpng, optional as in image_file.hpp): colours, and class ids with a palette,
// which is how label files of segmentation data look.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "harness/tasks/images/image_file.hpp"

namespace bnlab {

// The colour of a class, red, green, blue, by the rule of the PASCAL VOC data set: the bits of the id, lowest
// three first, become the highest bits of red, green and blue. 0 is black, 255 the colour that void has
// there.
std::array<uint8_t, 3> class_colour(uint8_t id);

// One channel: ids with the palette of class_colour; three: red, green, blue. Throws Error (environment)
// where the file cannot be written, or this build has no libpng.
void write_png(const std::string& file, const Pixels& pixels);

}  // namespace bnlab
