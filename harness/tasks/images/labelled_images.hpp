// A set of photographs with labels. All of them are read and checked once; as many as fit into a budget stay
// in memory as bytes, the others are read again whenever they are asked for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "harness/tasks/images/photograph.hpp"

namespace bnlab {

class LabelledImages {
 public:
  // What is known of every photograph (reduced as it is used), in memory or not.
  struct Summary {
    int64_t height = 0;
    int64_t width = 0;
    std::array<int64_t, 2> file_size = {};  // height and width before it was reduced
    std::array<uint64_t, 3> sum = {};       // bytes, by channel
    std::array<uint64_t, 3> squares = {};
    std::vector<int64_t> class_pixels = {};
  };

  LabelledImages() = default;
  // Reads on as many threads as LibTorch uses. Throws what the first file that cannot be read throws
  // (read_photograph). `budget`: bytes of photographs to keep.
  LabelledImages(std::vector<LabelledFile> files, Reading reading, int64_t classes, int64_t budget);

  // Some of these photographs, which share their memory.
  LabelledImages part(const std::vector<int64_t>& places) const;
  // The same photographs, reduced further to this height and width. None of them stays in memory.
  LabelledImages read_again(const std::optional<std::array<int64_t, 2>>& fit_into) const;

  int64_t count() const { return static_cast<int64_t>(files_.size()); }
  const std::vector<LabelledFile>& files() const { return files_; }
  const std::vector<Summary>& summaries() const { return summaries_; }
  int64_t kept() const;        // photographs in memory
  int64_t bytes_kept() const;  // their size

  // The same whether it is in memory or read again. Thread-safe.
  std::shared_ptr<const Photograph> photograph(int64_t index) const;

 private:
  std::vector<LabelledFile> files_;
  Reading reading_;
  std::vector<Summary> summaries_;
  std::vector<std::shared_ptr<const Photograph>> kept_;  // null: to be read again
};

// How many pixels each class has in all images.
std::vector<int64_t> class_pixels(const std::vector<LabelledImages::Summary>& images);

// Median-frequency weights of the classes: a class's frequency is its share of all pixels of the images that
// show it, its weight the median of all frequencies over its own (Eigen and Fergus, ICCV 2015). A class that
// no image shows has weight 0 and is no part of the median.
std::vector<double> median_frequency_weights(const std::vector<LabelledImages::Summary>& images);

// Mean and standard deviation of each channel, in units of 8-bit values.
struct ChannelMoments {
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};
};
ChannelMoments channel_moments(const std::vector<LabelledImages::Summary>& images);

// Does work(0) .. work(count - 1), on as many threads as LibTorch uses. Throws what the lowest index threw
// that failed.
void in_parallel(size_t count, const std::function<void(size_t)>& work);

}  // namespace bnlab
