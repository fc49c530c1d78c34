// How training examples are made of photographs: a random scale, position and flip, and by choice a turn, a
// limit to what one class may cover, changed colours and a blur. Registered as presets of one set of options
// (augmentation.cpp):
//   plain   scale, crop and flip
//   semseg  https://github.com/hszhao/semseg: and turned, and blurred
//   mmseg   https://github.com/open-mmlab/mmsegmentation: no crop of nearly one class; changed colours
// All that is drawn comes from the given stream.
#pragma once

#include "harness/components/options.hpp"
#include "harness/support/json.hpp"
#include "harness/support/random.hpp"
#include "harness/tasks/images/crop.hpp"

namespace bnlab {

struct AugmentationOptions {
  bool flip = true;
  double rotation = 0;
  double most_of_one_class = 1;
  double brightness = 0, contrast = 0, saturation = 0, hue = 0;
  int64_t blur = 0;

  void describe(OptionVisitor& option);
};

class Augmentation {
 public:
  static constexpr const char* kFamily = "augmentation";
  struct Context {};

  Augmentation(const AugmentationOptions& options, const Context&) : options_(options) {}

  // Writes image, float32 [3, height, width], and labels, int64 [height, width], both contiguous: a crop of
  // this size of the photograph, scaled by a factor that is uniform in [scale_min, scale_max).
  void make(Stream& stream, const Photograph& photograph, double scale_min, double scale_max,
            const ChannelMoments& moments, const at::Tensor& image, const at::Tensor& labels) const;

 private:
  AugmentationOptions options_;
};

// Blurs the planes of a float32 image [channels, height, width] by a Gaussian of `size` pixels across (odd),
// whose deviation is 0.3 (size / 2 - 1) + 0.8 with size / 2 rounded down; at the borders the image is
// mirrored.
void blur(const at::Tensor& image, int64_t size);

}  // namespace bnlab
