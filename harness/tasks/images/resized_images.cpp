#include "harness/tasks/images/resized_images.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "harness/tasks/images/image_file.hpp"

namespace bnlab {
namespace {

constexpr std::array<float, 3> kMean = {123.675f, 116.28f, 103.53f}, kDeviation = {58.395f, 57.12f, 57.375f};

// By torch's antialiased bilinear filter, as torchvision resizes.
at::Tensor read_resized(const std::string& file, int64_t short_side) {
  const Pixels pixels = read_rgb(file);
  const at::Tensor whole =
      at::from_blob(const_cast<uint8_t*>(pixels.values.data()), {pixels.height, pixels.width, 3}, at::kByte);
  const auto shorter = static_cast<double>(std::min(pixels.height, pixels.width));
  const auto resized = [&](int64_t side) {
    return static_cast<int64_t>(std::floor(static_cast<double>(side * short_side) / shorter));
  };
  const at::Tensor small = at::_upsample_bilinear2d_aa(
      whole.permute({2, 0, 1}).unsqueeze(0), {resized(pixels.height), resized(pixels.width)}, false);
  return small[0].permute({1, 2, 0}).clone(at::MemoryFormat::Contiguous);
}

}  // namespace

void WindowOptions::describe(OptionVisitor& option) {
  option("size", size, "height and width of the network's images in pixels").at_least(8).at_most(4096);
  option("short_side", short_side, "what the short side of an image is resized to before it is cut to size")
      .at_least(8)
      .at_most(4096);
}

void WindowOptions::check(Problems& problems) const {
  if (const int64_t least = std::max(size[0], size[1]); short_side < least) {
    problems.add("short_side", "expected at least the larger side of size, " + std::to_string(least) +
                                   ", got " + std::to_string(short_side));
  }
}

ResizedImages::ResizedImages(std::vector<std::string> files, int64_t short_side, int64_t budget)
    : files_(std::move(files)), short_side_(short_side) {
  const int64_t each = 3 * short_side * short_side * 4 / 3;  // a photograph of 4:3
  kept_.resize(std::min(files_.size(), static_cast<size_t>(budget / each)));
  at::parallel_for(0, static_cast<int64_t>(kept_.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kept_[static_cast<size_t>(i)] = read_resized(file(i), short_side_);
  });
}

ResizedImages ResizedImages::part(const std::vector<int64_t>& places) const {
  ResizedImages some;
  some.short_side_ = short_side_;
  for (const int64_t place : places) {
    some.files_.push_back(file(place));
    if (place < std::ssize(kept_)) some.kept_.push_back(kept_[static_cast<size_t>(place)]);
  }
  return some;
}

at::Tensor ResizedImages::image(int64_t index) const {
  const auto place = static_cast<size_t>(index);
  return place < kept_.size() ? kept_[place] : read_resized(files_[place], short_side_);
}

Window centre_window(const at::Tensor& image, const std::array<int64_t, 2>& size) {
  return {(image.size(0) - size[0]) / 2, (image.size(1) - size[1]) / 2, false};
}

Window random_window(Stream& stream, const at::Tensor& image, const std::array<int64_t, 2>& size) {
  Window window;
  window.top = stream.below(image.size(0) - size[0] + 1);
  window.left = stream.below(image.size(1) - size[1] + 1);
  window.flip = stream.below(2) == 1;
  return window;
}

void cut_window(const at::Tensor& image, const Window& window, const std::array<int64_t, 2>& size,
                float* to) {
  const auto [height, width] = size;
  for (int64_t y = 0; y < height; ++y) {
    const uint8_t* row =
        image.const_data_ptr<uint8_t>() + ((window.top + y) * image.size(1) + window.left) * 3;
    for (int64_t x = 0; x < width; ++x) {
      const uint8_t* pixel = row + (window.flip ? width - 1 - x : x) * 3;
      for (size_t c = 0; c < 3; ++c) {
        to[(static_cast<int64_t>(c) * height + y) * width + x] =
            (static_cast<float>(pixel[c]) - kMean[c]) / kDeviation[c];
      }
    }
  }
}

}  // namespace bnlab
