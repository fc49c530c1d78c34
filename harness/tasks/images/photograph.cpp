#include "harness/tasks/images/photograph.hpp"

#include <algorithm>
#include <cmath>

#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {
namespace {

std::string size_text(int64_t height, int64_t width) {
  return std::to_string(height) + "x" + std::to_string(width);
}

// Ranges of the ids for which `holds`: "7 to 8, 11".
template <class Condition>
std::string id_ranges(const LabelMap& map, Condition holds) {
  std::vector<std::string> ranges;
  for (size_t begin = 0; begin < map.class_of.size(); ++begin) {
    size_t end = begin;
    while (end < map.class_of.size() && holds(map.class_of[end])) ++end;
    if (end > begin) {
      const std::string first = std::to_string(begin), last = std::to_string(end - 1);
      ranges.push_back(end - begin == 1 ? first : first + " to " + last);
      begin = end;
    }
  }
  return joined(ranges);
}

// "ids 0 to 10 and 11 (void)"
std::string expected_ids(const LabelMap& map) {
  const std::string voids = id_ranges(map, [](int16_t c) { return c == Task::kVoid; });
  return "ids " + id_ranges(map, [](int16_t c) { return c >= 0; }) +
         (voids.empty() ? "" : " and " + voids + " (void)");
}

[[noreturn]] void refuse_id(const LabelledFile& file, const LabelMap& map, const Pixels& labels,
                            size_t place) {
  const auto width = static_cast<size_t>(labels.width);
  throw FaultyData("foreign label ids", file.labels + ": expected " + expected_ids(map) + ", got " +
                                            std::to_string(labels.values[place]) + " at row " +
                                            std::to_string(place / width) + ", column " +
                                            std::to_string(place % width) + "; " + map.cure);
}

// What to do where image and labels differ in size.
std::string size_cure(const LabelledFile& file, const Pixels& image, const Pixels& labels) {
  const bool exchanged = image.height == labels.width && image.width == labels.height;
  if (exchanged && image.orientation >= 5) {
    return "; the labels fit the photograph as it is stored, and its EXIF orientation " +
           std::to_string(image.orientation) +
           " turns it: make the labels again in a tool that applies it, or, if they are right for the stored "
           "pixels, take the orientation away: " +
           shell_command("exiftool -overwrite_original -Orientation=", {file.image});
  }
  return exchanged ? "; one of them is turned: turn the labels as the photograph is seen"
                   : "; export the labels again at the image's size";
}

int64_t reduced(int64_t side, double scale) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(side) * scale));
}

std::array<int64_t, 2> reduced_size(const Pixels& image, const Reading& reading) {
  std::array<int64_t, 2> size = {reduced(image.height, reading.scale), reduced(image.width, reading.scale)};
  if (reading.fit_into) {
    const auto share = [&](size_t side) {
      return static_cast<double>((*reading.fit_into)[side]) / static_cast<double>(size[side]);
    };
    const double scale = std::min({1.0, share(0), share(1)});
    size = {reduced(size[0], scale), reduced(size[1], scale)};
  }
  return size;
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
      for (int64_t k = 0; k < line; ++k) out[k] += share * from[i * line + k];
    }
  }
}

// [height, width, 3] of `image` -> [h, w, 3].
std::vector<uint8_t> reduce_image(Pixels image, int64_t h, int64_t w) {
  if (h == image.height && w == image.width) return std::move(image.values);
  const std::vector<float> whole(image.values.begin(), image.values.end());
  std::vector<float> fewer_rows(static_cast<size_t>(h * image.width * 3));
  std::vector<float> row(static_cast<size_t>(w * 3));
  std::vector<uint8_t> all;
  all.reserve(static_cast<size_t>(h * w * 3));
  average_lines(whole.data(), image.height, image.width * 3, fewer_rows.data(), h);
  for (int64_t y = 0; y < h; ++y) {
    average_lines(fewer_rows.data() + y * image.width * 3, image.width, 3, row.data(), w);
    std::ranges::transform(row, std::back_inserter(all),
                           [](float value) { return static_cast<uint8_t>(value + 0.5f); });
  }
  return all;
}

// Nearest: the pixel under the centre of each pixel of the reduced grid.
std::vector<int16_t> reduce_labels(const Pixels& labels, int64_t h, int64_t w, const LabelMap& map) {
  std::vector<int16_t> all(static_cast<size_t>(h * w));
  for (int64_t y = 0; y < h; ++y) {
    const int64_t row = (2 * y + 1) * labels.height / (2 * h);
    for (int64_t x = 0; x < w; ++x) {
      const int64_t column = (2 * x + 1) * labels.width / (2 * w);
      const uint8_t id = labels.values[static_cast<size_t>(row * labels.width + column)];
      all[static_cast<size_t>(y * w + x)] = map.class_of[id];
    }
  }
  return all;
}

}  // namespace

LabelMap label_map(int64_t classes, const std::vector<int64_t>& void_ids) {
  LabelMap map;
  for (size_t id = 0; id < map.class_of.size(); ++id)
    map.class_of[id] = static_cast<int64_t>(id) < classes ? static_cast<int16_t>(id) : LabelMap::kForeign;
  for (const int64_t id : void_ids) map.class_of.at(static_cast<size_t>(id)) = Task::kVoid;
  return map;
}

void check_labels(const LabelledFile& file, const Pixels& image, const Pixels& labels, const LabelMap& map) {
  if (image.height != labels.height || image.width != labels.width) {
    throw FaultyData("labels of another size", file.labels + ": expected the size of its image, " +
                                                   size_text(image.height, image.width) + ", got " +
                                                   size_text(labels.height, labels.width) +
                                                   size_cure(file, image, labels));
  }
  for (size_t i = 0; i < labels.values.size(); ++i)
    if (map.class_of[labels.values[i]] == LabelMap::kForeign) refuse_id(file, map, labels, i);
}

Photograph read_photograph(const LabelledFile& file, const Reading& reading) {
  if (!file.fault.message.empty()) throw FaultyData({file.fault});
  Pixels image = read_rgb(file.image);
  const Pixels labels = read_label_ids_of_task(file.labels, reading.labels.ids_cure);
  check_labels(file, image, labels, reading.labels);
  const std::array<int64_t, 2> file_size = {image.height, image.width};
  const auto [h, w] = reduced_size(image, reading);
  return {.height = h,
          .width = w,
          .pixels = reduce_image(std::move(image), h, w),
          .labels = reduce_labels(labels, h, w, reading.labels),
          .file_size = file_size};
}

}  // namespace bnlab
