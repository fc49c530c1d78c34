#include "harness/tasks/images/colour.hpp"

#include <algorithm>
#include <cmath>

namespace bnlab {
namespace {

float cut_off(float value) {
  return std::clamp(value, 0.0f, 255.0f);
}

// In the hexcone of hue, saturation and value the value is the largest channel, and saturation scales the
// distance of the others to it, down to 0 at most.
Colour saturated(Colour colour, float factor) {
  const auto [least, most] = std::minmax({colour[0], colour[1], colour[2]});
  if (most > least) {
    factor = std::min(factor, most / (most - least));
    std::ranges::transform(colour, colour.begin(),
                           [&, most = most](float c) { return most - factor * (most - c); });
  }
  return colour;
}

// The hue as a position on the colour circle, [0, 6): red at 0, green at 2, blue at 4.
float hue_of(const Colour& colour, float most, float spread) {
  if (colour[0] == most) {
    return (colour[1] - colour[2]) / spread;
  }
  return colour[1] == most ? 2 + (colour[2] - colour[0]) / spread : 4 + (colour[0] - colour[1]) / spread;
}

Colour turned(const Colour& colour, float degrees) {
  const auto [least, most] = std::minmax({colour[0], colour[1], colour[2]});
  const float spread = most - least;
  if (spread == 0) {
    return colour;
  }
  const float hue = hue_of(colour, most, spread) + degrees / 60;
  Colour result;
  for (size_t c = 0; c < 3; ++c) {
    // The distance on the circle to the channel's own hue: full within 1, none beyond 2.
    const float away = std::remainder(hue - 2 * static_cast<float>(c), 6.0f);
    result[c] = least + spread * std::clamp(2 - std::abs(away), 0.0f, 1.0f);
  }
  return result;
}

}  // namespace

Colour changed(Colour colour, const ColourChange& change) {
  const auto each = [&](auto change_of) { std::ranges::transform(colour, colour.begin(), change_of); };
  const auto contrast = [&] { each([&](float c) { return cut_off(c * change.contrast); }); };
  each([&](float c) { return cut_off(c + change.brightness); });
  if (change.contrast_first) {
    contrast();
  }
  colour = turned(saturated(colour, change.saturation), change.hue);
  if (!change.contrast_first) {
    contrast();
  }
  return colour;
}

}  // namespace bnlab
