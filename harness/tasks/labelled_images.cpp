#include "harness/tasks/labelled_images.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>

#include "harness/error.hpp"
#include "harness/tasks/image_file.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {
namespace {

std::string size_text(const Pixels& pixels) {
  return std::to_string(pixels.height) + "x" + std::to_string(pixels.width);
}

int64_t reduced(int64_t side, double scale) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(side) * scale));
}

// Averages `count` lines of `line` values each (rows of an image, or the pixels of one row) to
// `reduced_count` lines; a line that straddles a border counts with its share.
void average_lines(const float* from, int64_t count, int64_t line, float* to, int64_t reduced_count) {
  const double step = static_cast<double>(count) / static_cast<double>(reduced_count);
  for (int64_t r = 0; r < reduced_count; ++r) {
    float* out = to + r * line;
    std::fill(out, out + line, 0.0f);
    const double begin = static_cast<double>(r) * step, end = static_cast<double>(r + 1) * step;
    const auto last = std::min(count, static_cast<int64_t>(std::ceil(end)));
    for (auto i = static_cast<int64_t>(begin); i < last; ++i) {
      const double covered = std::min(end, static_cast<double>(i + 1)) - std::max(begin, double(i));
      const auto share = static_cast<float>(covered / step);
      for (int64_t k = 0; k < line; ++k) {
        out[k] += share * from[i * line + k];
      }
    }
  }
}

// [height, width, 3] of `pixels` -> [h, w, 3].
void reduce_image(const Pixels& pixels, int64_t h, int64_t w, uint8_t* to) {
  if (h == pixels.height && w == pixels.width) {
    std::copy(pixels.values.begin(), pixels.values.end(), to);
    return;
  }
  const std::vector<float> whole(pixels.values.begin(), pixels.values.end());
  std::vector<float> fewer_rows(static_cast<size_t>(h * pixels.width * 3));
  std::vector<float> row(static_cast<size_t>(w * 3));
  average_lines(whole.data(), pixels.height, pixels.width * 3, fewer_rows.data(), h);
  for (int64_t y = 0; y < h; ++y) {
    average_lines(fewer_rows.data() + y * pixels.width * 3, pixels.width, 3, row.data(), w);
    std::transform(row.begin(), row.end(), to + y * w * 3,
                   [](float value) { return static_cast<uint8_t>(value + 0.5f); });
  }
}

// Nearest: the pixel under the centre of each pixel of the reduced grid.
void reduce_labels(const Pixels& pixels, int64_t h, int64_t w, LabelIds ids, int16_t* to) {
  for (int64_t y = 0; y < h; ++y) {
    const int64_t row = (2 * y + 1) * pixels.height / (2 * h);
    for (int64_t x = 0; x < w; ++x) {
      const int64_t column = (2 * x + 1) * pixels.width / (2 * w);
      const int64_t id = pixels.values[static_cast<size_t>(row * pixels.width + column)];
      to[y * w + x] = static_cast<int16_t>(id == ids.void_id ? Task::kVoid : id);
    }
  }
}

void check(const LabelledFile& file, const Pixels& image, const Pixels& labels, const Pixels& first_image,
           const std::string& first_file, LabelIds ids) {
  const auto fail = [](const std::string& message) { throw Error(Error::Kind::data, message); };
  if (size_text(image) != size_text(labels)) {
    fail(file.labels + ": expected the size of its image, " + size_text(image) + ", got " +
         size_text(labels) + "; export the labels again at the image's size");
  }
  if (size_text(image) != size_text(first_image)) {
    fail(file.image + ": expected the size of " + first_file + ", " + size_text(first_image) + ", got " +
         size_text(image) + "; all images of a split need one size");
  }
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const int64_t id = labels.values[i];
    if (id >= ids.classes && id != ids.void_id) {
      const auto width = static_cast<size_t>(labels.width);
      fail(file.labels + ": expected ids 0 to " + std::to_string(ids.classes - 1) + " and " +
           std::to_string(ids.void_id) + " (void), got " + std::to_string(id) + " at row " +
           std::to_string(i / width) + ", column " + std::to_string(i % width) +
           "; map the labels to these ids");
    }
  }
}

// work(0) .. work(count - 1) on several threads; throws what the lowest failing index threw.
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
  for (const std::exception_ptr& failure : failures) {
    if (failure) {
      std::rethrow_exception(failure);
    }
  }
}

}  // namespace

LabelledImages load_labelled_images(const std::vector<LabelledFile>& files, double scale, LabelIds ids) {
  const Pixels first = read_rgb(files.at(0).image);
  const int64_t h = reduced(first.height, scale), w = reduced(first.width, scale);
  const auto count = static_cast<int64_t>(files.size());
  LabelledImages set{at::empty({count, h, w, 3}, at::kByte), at::empty({count, h, w}, at::kShort)};
  auto* images = set.images.mutable_data_ptr<uint8_t>();
  auto* labels = set.labels.mutable_data_ptr<int16_t>();
  in_parallel(files.size(), [&](size_t i) {
    const Pixels image = read_rgb(files[i].image);
    const Pixels ids_of_image = read_label_ids(files[i].labels);
    check(files[i], image, ids_of_image, first, files[0].image, ids);
    const auto start = static_cast<int64_t>(i) * h * w;
    reduce_image(image, h, w, images + start * 3);
    reduce_labels(ids_of_image, h, w, ids, labels + start);
  });
  return set;
}

ChannelMoments channel_moments(const LabelledImages& set) {
  std::array<uint64_t, 3> sum{}, squares{};  // exact: 2^64 holds 2^48 squared bytes
  const auto* values = set.images.const_data_ptr<uint8_t>();
  const int64_t count = set.images.numel() / 3;
  for (int64_t i = 0; i < count; ++i) {
    for (size_t c = 0; c < 3; ++c) {
      const uint64_t value = values[i * 3 + static_cast<int64_t>(c)];
      sum[c] += value;
      squares[c] += value * value;
    }
  }
  ChannelMoments moments;
  for (size_t c = 0; c < 3; ++c) {
    const double mean = static_cast<double>(sum[c]) / static_cast<double>(count);
    const double variance = static_cast<double>(squares[c]) / static_cast<double>(count) - mean * mean;
    moments.mean[c] = static_cast<float>(mean);
    moments.deviation[c] = static_cast<float>(std::sqrt(std::max(variance, 1.0)));
  }
  return moments;
}

}  // namespace bnlab
