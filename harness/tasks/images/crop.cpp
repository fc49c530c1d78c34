#include "harness/tasks/images/crop.hpp"

#include <algorithm>
#include <cmath>

#include "harness/tasks/task.hpp"

namespace bnlab {
namespace {

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

}  // namespace

Crop whole_image(const Photograph& photograph, int64_t height, int64_t width) {
  return {height, width, photograph.height, photograph.width, 0, 0, false};
}

Crop random_crop(Stream& stream, const Photograph& photograph, int64_t height, int64_t width,
                 double scale_min, double scale_max) {
  const double scale = stream.uniform(scale_min, scale_max);
  Crop crop{height, width, scaled(photograph.height, scale), scaled(photograph.width, scale), 0, 0, false};
  crop.top = random_position(stream, crop.scaled_height, height);
  crop.left = random_position(stream, crop.scaled_width, width);
  crop.flip = stream.below(2) == 1;
  return crop;
}

void cut(const Photograph& photograph, const Crop& crop, const ChannelMoments& moments,
         const at::Tensor& image_tensor, const at::Tensor& label_tensor) {
  auto* image = image_tensor.mutable_data_ptr<float>();
  auto* labels = label_tensor.mutable_data_ptr<int64_t>();
  const int64_t width = photograph.width, row_values = width * 3, plane = crop.height * crop.width;
  const uint8_t* source = photograph.pixels.data();
  const int16_t* ids = photograph.labels.data();
  std::vector<Tap> columns = taps(width, crop.scaled_width, crop.left, crop.width);
  if (crop.flip) {
    std::ranges::reverse(columns);
  }
  const std::vector<Tap> rows = taps(photograph.height, crop.scaled_height, crop.top, crop.height);
  std::fill(image, image + 3 * plane, 0.0f);
  std::fill(labels, labels + plane, Task::kVoid);
  std::vector<float> blended(static_cast<size_t>(row_values));
  for (int64_t y = 0; y < crop.height; ++y) {
    const Tap& row = rows[static_cast<size_t>(y)];
    if (row.nearest < 0) {
      continue;
    }
    blend(source + row.low * row_values, source + row.high * row_values, row.weight, row_values,
          blended.data());
    for (int64_t x = 0; x < crop.width; ++x) {
      const Tap& column = columns[static_cast<size_t>(x)];
      if (column.nearest < 0) {
        continue;
      }
      const float *left = &blended[static_cast<size_t>(column.low * 3)],
                  *right = &blended[static_cast<size_t>(column.high * 3)];
      float* pixel = image + y * crop.width + x;
      for (size_t c = 0; c < 3; ++c) {
        const float value = left[c] + column.weight * (right[c] - left[c]);
        pixel[static_cast<int64_t>(c) * plane] = (value - moments.mean[c]) / moments.deviation[c];
      }
      labels[y * crop.width + x] = ids[row.nearest * width + column.nearest];
    }
  }
}

}  // namespace bnlab
