// Changes of a pixel's colour, drawn once for a crop: brightness, contrast, saturation and hue.
#pragma once

#include <array>

namespace bnlab {

using Colour = std::array<float, 3>;  // red, green, blue, in units of 8-bit values

// Values are cut off at 0 and 255 after every change.
struct ColourChange {
  float brightness = 0;         // added to all channels
  float contrast = 1;           // factor of all channels
  float saturation = 1;         // factor of the distance to the largest channel
  float hue = 0;                // turn of the colour circle, in degrees
  bool contrast_first = false;  // before saturation and hue, else after them

  bool none() const { return brightness == 0 && contrast == 1 && saturation == 1 && hue == 0; }
};

Colour changed(Colour colour, const ColourChange& change);

}  // namespace bnlab
