// Photographs of any size as networks for whole images take them: the short side brought to one length, a
// window of one size cut out, normalised by the moments of ImageNet's pixels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/support/random.hpp"

namespace bnlab {

// The options of a task on such images.
struct WindowOptions {
  std::array<int64_t, 2> size = {224, 224};
  int64_t short_side = 256;

  void describe(OptionVisitor& option);
  void check(Problems& problems) const;
};

class ResizedImages {
 public:
  ResizedImages() = default;
  // Reads images, on as many threads as LibTorch uses, until `budget` bytes are about full; the others are
  // read when they are asked for. Throws Error (data), naming the file, if one cannot be read.
  ResizedImages(std::vector<std::string> files, int64_t short_side, int64_t budget = int64_t{1} << 30);

  // Some of these images, which share their memory; `places` rise.
  ResizedImages part(const std::vector<int64_t>& places) const;

  int64_t count() const { return static_cast<int64_t>(files_.size()); }
  const std::string& file(int64_t index) const { return files_[static_cast<size_t>(index)]; }
  // uint8 [height, width, 3], contiguous; the short side has the length asked for. Thread-safe.
  at::Tensor image(int64_t index) const;

 private:
  std::vector<std::string> files_;
  int64_t short_side_ = 0;
  std::vector<at::Tensor> kept_;  // the first ones
};

// A part of an image, flipped or not.
struct Window {
  int64_t top = 0;
  int64_t left = 0;
  bool flip = false;
};

// image: [height, width, 3], at least as large as the window.
Window centre_window(const at::Tensor& image, const std::array<int64_t, 2>& size);
// Every position is equally likely; half of the windows are flipped left to right.
Window random_window(Stream& stream, const at::Tensor& image, const std::array<int64_t, 2>& size);
// Writes float32 [3, height, width] of the window.
void cut_window(const at::Tensor& image, const Window& window, const std::array<int64_t, 2>& size, float* to);

}  // namespace bnlab
