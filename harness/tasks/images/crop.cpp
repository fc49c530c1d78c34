#include "harness/tasks/images/crop.hpp"

#include <algorithm>
#include <cmath>

#include "harness/tasks/task.hpp"

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
  if (colour[0] == most) return (colour[1] - colour[2]) / spread;
  return colour[1] == most ? 2 + (colour[2] - colour[0]) / spread : 4 + (colour[0] - colour[1]) / spread;
}

Colour turned(const Colour& colour, float degrees) {
  const auto [least, most] = std::minmax({colour[0], colour[1], colour[2]});
  const float spread = most - least;
  if (spread == 0) return colour;
  const float hue = hue_of(colour, most, spread) + degrees / 60;
  Colour result;
  for (size_t c = 0; c < 3; ++c) {
    // The distance on the circle to the channel's own hue: full within 1, none beyond 2.
    const float away = std::remainder(hue - 2 * static_cast<float>(c), 6.0f);
    result[c] = least + spread * std::clamp(2 - std::abs(away), 0.0f, 1.0f);
  }
  return result;
}

// Where one row or column of the crop comes from.
struct Tap {
  int64_t nearest = -1;  // -1: outside the photograph
  int64_t low = 0;       // bilinear neighbours, and the weight of the second
  int64_t high = 0;
  float weight = 0;
};

std::vector<Tap> taps(int64_t size, int64_t scaled_size, int64_t begin, int64_t count) {
  std::vector<Tap> all(static_cast<size_t>(count));
  const double step = static_cast<double>(size) / static_cast<double>(scaled_size);
  for (int64_t i = std::max<int64_t>(0, -begin); i < std::min(count, scaled_size - begin); ++i) {
    const double centre = (static_cast<double>(begin + i) + 0.5) * step;
    const double position = std::clamp(centre - 0.5, 0.0, static_cast<double>(size - 1));
    Tap& tap = all[static_cast<size_t>(i)];
    tap.nearest = std::min(size - 1, static_cast<int64_t>(centre));
    tap.low = static_cast<int64_t>(position);
    tap.high = std::min(size - 1, tap.low + 1);
    tap.weight = static_cast<float>(position - static_cast<double>(tap.low));
  }
  return all;
}

// `count` values between two source rows.
void blend(const uint8_t* low, const uint8_t* high, float weight, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = low[i];
    to[i] = value + weight * (static_cast<float>(high[i]) - value);
  }
}

// A random position of the crop along one side: inside the photograph where that is larger, else around it.
int64_t random_position(Stream& stream, int64_t scaled_size, int64_t crop_size) {
  const int64_t spare = scaled_size - crop_size;
  return std::min<int64_t>(0, spare) + stream.below(std::abs(spare) + 1);
}

int64_t scaled(int64_t size, double scale) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(size) * scale));
}

// Where a crop is written to: pixel by pixel, what is left out is void and has the mean colour.
class Canvas {
 public:
  Canvas(const Crop& crop, const ChannelMoments& moments, const at::Tensor& image, const at::Tensor& labels)
      : moments_(moments),
        change_(crop.colour),
        changes_(!crop.colour.none()),
        plane_(crop.height * crop.width),
        width_(crop.width),
        image_(image.mutable_data_ptr<float>()),
        labels_(labels.mutable_data_ptr<int64_t>()) {
    std::fill(image_, image_ + 3 * plane_, 0.0f);
    std::fill(labels_, labels_ + plane_, Task::kVoid);
  }

  void put(int64_t y, int64_t x, Colour colour, int64_t label) const {
    if (changes_) colour = changed(colour, change_);
    float* pixel = image_ + y * width_ + x;
    for (size_t c = 0; c < 3; ++c)
      pixel[static_cast<int64_t>(c) * plane_] = (colour[c] - moments_.mean[c]) / moments_.deviation[c];
    labels_[y * width_ + x] = label;
  }

 private:
  ChannelMoments moments_;
  ColourChange change_;
  bool changes_;
  int64_t plane_, width_;
  float* image_;
  int64_t* labels_;
};

// The colour between two pixels.
Colour between(const float* left, const float* right, float weight) {
  Colour colour;
  for (size_t c = 0; c < 3; ++c) colour[c] = left[c] + weight * (right[c] - left[c]);
  return colour;
}

void cut_straight(const Photograph& photograph, const Crop& crop, const Canvas& canvas) {
  const int64_t width = photograph.width, row_values = width * 3;
  const uint8_t* source = photograph.pixels.data();
  std::vector<Tap> columns = taps(width, crop.scaled_width, crop.left, crop.width);
  if (crop.flip) std::ranges::reverse(columns);
  const std::vector<Tap> rows = taps(photograph.height, crop.scaled_height, crop.top, crop.height);
  std::vector<float> blended(static_cast<size_t>(row_values));
  for (int64_t y = 0; y < crop.height; ++y) {
    const Tap& row = rows[static_cast<size_t>(y)];
    if (row.nearest < 0) continue;
    blend(source + row.low * row_values, source + row.high * row_values, row.weight, row_values,
          blended.data());
    const int16_t* labels = photograph.labels.data() + row.nearest * width;
    for (int64_t x = 0; x < crop.width; ++x) {
      if (const Tap& column = columns[static_cast<size_t>(x)]; column.nearest >= 0) {
        const Colour colour = between(&blended[static_cast<size_t>(column.low * 3)],
                                      &blended[static_cast<size_t>(column.high * 3)], column.weight);
        canvas.put(y, x, colour, labels[column.nearest]);
      }
    }
  }
}

// Where a position in the scaled photograph lies in the photograph.
Tap tap(int64_t size, int64_t scaled_size, double position) {
  const double centre = position * static_cast<double>(size) / static_cast<double>(scaled_size);
  if (centre < 0 || centre >= static_cast<double>(size)) return {};
  const double corner = std::clamp(centre - 0.5, 0.0, static_cast<double>(size - 1));
  const auto low = static_cast<int64_t>(corner);
  return {.nearest = static_cast<int64_t>(centre),
          .low = low,
          .high = std::min(size - 1, low + 1),
          .weight = static_cast<float>(corner - static_cast<double>(low))};
}

void cut_turned(const Photograph& photograph, const Crop& crop, const Canvas& canvas) {
  const double sine = std::sin(crop.angle), cosine = std::cos(crop.angle);
  const double middle_y = static_cast<double>(crop.scaled_height) / 2,
               middle_x = static_cast<double>(crop.scaled_width) / 2;
  for (int64_t y = 0; y < crop.height; ++y) {
    for (int64_t x = 0; x < crop.width; ++x) {
      const int64_t column_in_crop = crop.flip ? crop.width - 1 - x : x;
      const double v = static_cast<double>(crop.top + y) + 0.5 - middle_y,
                   u = static_cast<double>(crop.left + column_in_crop) + 0.5 - middle_x;
      const Tap row = tap(photograph.height, crop.scaled_height, middle_y + cosine * v + sine * u);
      const Tap column = tap(photograph.width, crop.scaled_width, middle_x + cosine * u - sine * v);
      if (row.nearest < 0 || column.nearest < 0) continue;
      const auto colour_at = [&](int64_t place_y, int64_t place_x) {
        const uint8_t* bytes = photograph.pixels.data() + (place_y * photograph.width + place_x) * 3;
        return Colour{static_cast<float>(bytes[0]), static_cast<float>(bytes[1]),
                      static_cast<float>(bytes[2])};
      };
      const auto along_row = [&](int64_t place_y) {
        return between(colour_at(place_y, column.low).data(), colour_at(place_y, column.high).data(),
                       column.weight);
      };
      const Colour colour = between(along_row(row.low).data(), along_row(row.high).data(), row.weight);
      canvas.put(y, x, colour,
                 photograph.labels[static_cast<size_t>(row.nearest * photograph.width + column.nearest)]);
    }
  }
}

// Which of `size` rows or columns stands at each of `count` places.
at::Tensor there_and_back(int64_t size, int64_t count, at::Device device) {
  const int64_t period = std::max<int64_t>(1, 2 * (size - 1));
  const at::Tensor place = at::arange(count, at::TensorOptions(at::kLong).device(device)).remainder(period);
  return at::minimum(place, period - place);
}

}  // namespace

at::Tensor mirrored(const at::Tensor& images, int64_t height, int64_t width) {
  const auto along = [&](const at::Tensor& x, int64_t dim, int64_t count) {
    return count == x.size(dim) ? x : x.index_select(dim, there_and_back(x.size(dim), count, x.device()));
  };
  return along(along(images, 2, height), 3, width);
}

Colour changed(Colour colour, const ColourChange& change) {
  const auto each = [&](auto change_of) { std::ranges::transform(colour, colour.begin(), change_of); };
  const auto contrast = [&] { each([&](float c) { return cut_off(c * change.contrast); }); };
  each([&](float c) { return cut_off(c + change.brightness); });
  if (change.contrast_first) contrast();
  colour = turned(saturated(colour, change.saturation), change.hue);
  if (!change.contrast_first) contrast();
  return colour;
}

Crop whole_image(const Photograph& photograph, int64_t height, int64_t width) {
  return {
      .height = height, .width = width, .scaled_height = photograph.height, .scaled_width = photograph.width};
}

Crop random_crop(Stream& stream, const Photograph& photograph, int64_t height, int64_t width,
                 double scale_min, double scale_max) {
  const double scale = stream.uniform(scale_min, scale_max);
  Crop crop{.height = height,
            .width = width,
            .scaled_height = scaled(photograph.height, scale),
            .scaled_width = scaled(photograph.width, scale)};
  move(stream, crop);
  crop.flip = stream.below(2) == 1;
  return crop;
}

void move(Stream& stream, Crop& crop) {
  crop.top = random_position(stream, crop.scaled_height, crop.height);
  crop.left = random_position(stream, crop.scaled_width, crop.width);
}

void cut(const Photograph& photograph, const Crop& crop, const ChannelMoments& moments,
         const at::Tensor& image, const at::Tensor& labels) {
  const Canvas canvas(crop, moments, image, labels);
  crop.angle == 0 ? cut_straight(photograph, crop, canvas) : cut_turned(photograph, crop, canvas);
}

}  // namespace bnlab
