// Photographs with label images, decoded once, reduced and kept in memory as bytes. What any data set
// made of such pairs needs; which files belong together and what their ids mean is the task's business.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <torch/types.h>

namespace bnlab {

struct LabelledFile {
  std::string image;   // JPEG or PNG
  std::string labels;  // PNG of ids
  std::string group;   // the drive or place it was taken in
};

// The ids that label files may hold: 0 .. classes-1, and one more that becomes Task::kVoid.
struct LabelIds {
  int64_t classes = 0;
  int64_t void_id = 0;
};

struct LabelledImages {
  at::Tensor images;  // uint8 [N, height, width, 3]
  at::Tensor labels;  // int16 [N, height, width], class or Task::kVoid

  int64_t count() const { return labels.size(0); }
  int64_t height() const { return labels.size(1); }
  int64_t width() const { return labels.size(2); }
};

// Reads all files, on as many threads as LibTorch uses, and reduces them by `scale` in (0, 1]: images
// by area average, labels by taking the nearest. Throws Error (data), naming the file, if one cannot be
// read, differs in size from its labels or from the first image, or holds another id.
LabelledImages load_labelled_images(const std::vector<LabelledFile>& files, double scale, LabelIds ids);

// Mean and standard deviation of each channel over all images, in units of 8-bit values.
struct ChannelMoments {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};
ChannelMoments channel_moments(const LabelledImages& set);

}  // namespace bnlab
