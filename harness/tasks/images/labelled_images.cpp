#include "harness/tasks/images/labelled_images.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <numeric>
#include <vector>

#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

LabelledImages::Summary summary_of(const Photograph& photograph, int64_t classes) {
  LabelledImages::Summary summary{
      .height = photograph.height, .width = photograph.width, .file_size = photograph.file_size};
  for (size_t i = 0; i < photograph.pixels.size(); i += 3) {
    for (size_t c = 0; c < 3; ++c) {
      const uint64_t value = photograph.pixels[i + c];
      summary.sum[c] += value;
      summary.squares[c] += value * value;
    }
  }
  summary.class_pixels.resize(static_cast<size_t>(classes));
  for (const int16_t label : photograph.labels)
    if (label >= 0) ++summary.class_pixels[static_cast<size_t>(label)];
  return summary;
}

}  // namespace

void in_parallel(size_t count, const std::function<void(size_t)>& work) {
  std::vector<std::exception_ptr> failures(count);
  at::parallel_for(0, static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      try {
        work(i);
      } catch (...) {
        failures[i] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

LabelledImages::LabelledImages(std::vector<LabelledFile> files, Reading reading, int64_t classes,
                               int64_t budget)
    : files_(std::move(files)),
      reading_(std::move(reading)),
      summaries_(files_.size()),
      kept_(files_.size()) {
  std::atomic<int64_t> used = 0;
  in_parallel(files_.size(), [&](size_t i) {
    auto photograph = std::make_shared<const Photograph>(read_photograph(files_[i], reading_));
    summaries_[i] = summary_of(*photograph, classes);
    const int64_t bytes = photograph->bytes();
    if (used.fetch_add(bytes) + bytes <= budget)
      kept_[i] = std::move(photograph);
    else
      used -= bytes;
  });
}

LabelledImages LabelledImages::part(const std::vector<int64_t>& places) const {
  LabelledImages some;
  some.reading_ = reading_;
  for (const int64_t sample : places) {
    const auto place = static_cast<size_t>(sample);
    some.files_.push_back(files_[place]);
    some.summaries_.push_back(summaries_[place]);
    some.kept_.push_back(kept_[place]);
  }
  return some;
}

LabelledImages LabelledImages::read_again(const std::optional<std::array<int64_t, 2>>& fit_into) const {
  Reading reading = reading_;
  reading.fit_into = fit_into;
  const auto classes = summaries_.empty() ? 0 : std::ssize(summaries_.front().class_pixels);
  return LabelledImages(files_, std::move(reading), classes, 0);
}

int64_t LabelledImages::kept() const {
  return count() - std::ranges::count(kept_, nullptr);
}

int64_t LabelledImages::bytes_kept() const {
  int64_t bytes = 0;
  for (const auto& photograph : kept_) bytes += photograph ? photograph->bytes() : 0;
  return bytes;
}

std::shared_ptr<const Photograph> LabelledImages::photograph(int64_t index) const {
  const auto place = static_cast<size_t>(index);
  return kept_[place] ? kept_[place]
                      : std::make_shared<const Photograph>(read_photograph(files_[place], reading_));
}

std::vector<int64_t> class_pixels(const std::vector<LabelledImages::Summary>& images) {
  std::vector<int64_t> all(images.empty() ? 0 : images[0].class_pixels.size());
  for (const auto& image : images) std::ranges::transform(all, image.class_pixels, all.begin(), std::plus());
  return all;
}

std::vector<double> median_frequency_weights(const std::vector<LabelledImages::Summary>& images) {
  const std::vector<int64_t> pixels = class_pixels(images);
  std::vector<double> frequencies, shown;
  for (size_t c = 0; c < pixels.size(); ++c) {
    int64_t pixels_around = 0;  // in the images that show the class
    for (const auto& image : images)
      pixels_around += image.class_pixels[c] > 0 ? image.height * image.width : 0;
    frequencies.push_back(
        pixels_around > 0 ? static_cast<double>(pixels[c]) / static_cast<double>(pixels_around) : 0);
    if (pixels_around > 0) shown.push_back(frequencies.back());
  }
  std::ranges::sort(shown);
  const size_t count = shown.size();
  const double median = count == 0 ? 0 : (shown[(count - 1) / 2] + shown[count / 2]) / 2;
  return mapped(frequencies, [&](double frequency) { return frequency > 0 ? median / frequency : 0; });
}

ChannelMoments channel_moments(const std::vector<LabelledImages::Summary>& images) {
  ChannelMoments moments;
  for (size_t c = 0; c < 3; ++c) {
    uint64_t sum = 0, squares = 0, count = 0;  // exact: 2^64 holds 2^48 squared bytes
    for (const auto& image : images) {
      sum += image.sum[c];
      squares += image.squares[c];
      count += static_cast<uint64_t>(image.height * image.width);
    }
    const double mean = static_cast<double>(sum) / static_cast<double>(count);
    const double variance = static_cast<double>(squares) / static_cast<double>(count) - mean * mean;
    moments.mean[c] = static_cast<float>(mean);
    moments.deviation[c] = static_cast<float>(std::sqrt(std::max(variance, 1.0)));
  }
  return moments;
}

}  // namespace bnlab
