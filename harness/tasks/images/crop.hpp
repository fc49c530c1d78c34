// Cuts a crop out of a photograph and its labels in one pass: scaled, turned, flipped, padded, normalised.
// Only the crop's own pixels are computed: bilinear for the image, nearest for the labels. What lies
// outside the photograph is void and has the mean colour (0 once normalised).
#pragma once

#include <torch/types.h>

#include <array>
#include <cstdint>

#include "harness/support/random.hpp"
#include "harness/tasks/images/labelled_images.hpp"

namespace bnlab {

using Colour = std::array<float, 3>;  // red, green, blue, in units of 8-bit values

// Changes of a pixel's colour, drawn once for a crop: brightness, contrast, saturation and hue. Values are
// cut off at 0 and 255 after every change.
struct ColourChange {
  float brightness = 0;         // added to all channels
  float contrast = 1;           // factor of all channels
  float saturation = 1;         // factor of the distance to the largest channel
  float hue = 0;                // turn of the colour circle, in degrees
  bool contrast_first = false;  // before saturation and hue, else after them

  bool none() const { return brightness == 0 && contrast == 1 && saturation == 1 && hue == 0; }
};

Colour changed(Colour colour, const ColourChange& change);

struct Crop {
  int64_t height = 0;
  int64_t width = 0;
  int64_t scaled_height = 0;  // the whole photograph, once scaled
  int64_t scaled_width = 0;
  int64_t top = 0;  // within the scaled photograph; negative where it is padded
  int64_t left = 0;
  bool flip = false;
  double angle = 0;          // by which the scaled photograph is turned about its centre, in radians
  ColourChange colour = {};  // before the photograph's pixels are normalised
};

// Images [N, C, H, W], continued at the bottom and on the right by their mirror images to the given size,
// back and forth where that is far; the row or column at the edge is not repeated.
at::Tensor mirrored(const at::Tensor& images, int64_t height, int64_t width);

// The photograph as it is, padded to the given size at the bottom and on the right.
Crop whole_image(const Photograph& photograph, int64_t height, int64_t width);

// A crop of the given size: the scale is uniform in [scale_min, scale_max), every position is equally
// likely, half of the crops are flipped left to right.
Crop random_crop(Stream& stream, const Photograph& photograph, int64_t height, int64_t width,
                 double scale_min, double scale_max);

// Draws another position of the crop.
void move(Stream& stream, Crop& crop);

// Writes image, float32 [3, crop.height, crop.width], and labels, int64 [crop.height, crop.width]; both
// contiguous.
void cut(const Photograph& photograph, const Crop& crop, const ChannelMoments& moments,
         const at::Tensor& image, const at::Tensor& labels);

}  // namespace bnlab
