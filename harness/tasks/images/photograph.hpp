// One photograph with its labels, read from files: decoded, checked, its ids mapped to classes, and reduced.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/tasks/images/image_file.hpp"
#include "harness/tasks/images/listing.hpp"

namespace bnlab {

// What the ids of label files mean.
struct LabelMap {
  static constexpr int16_t kForeign = -2;  // an id that no file may hold

  std::array<int16_t, 256> class_of;  // by id: Task::kVoid and kForeign among them
  std::string cure = "map the labels to these ids";
  std::string ids_cure =
      {};  // what makes ids of label files that hold none; empty: the file's folder decides
};

// Ids 0 to classes - 1 are classes, and the given ones are void.
LabelMap label_map(int64_t classes, const std::vector<int64_t>& void_ids);

struct Reading {
  LabelMap labels;
  double scale = 1;                                // in (0, 1]
  std::optional<std::array<int64_t, 2>> fit_into;  // reduced further to this height and width, if larger
};

struct Photograph {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> pixels;            // [height, width, 3]
  std::vector<int16_t> labels;            // [height, width], class or Task::kVoid
  std::array<int64_t, 2> file_size = {};  // height and width before it was reduced

  int64_t bytes() const { return static_cast<int64_t>(pixels.size() + labels.size() * sizeof(int16_t)); }
};

// Throws FaultyData, naming the file, where image and labels differ in size or a pixel has a foreign id.
void check_labels(const LabelledFile& file, const Pixels& image, const Pixels& labels, const LabelMap& map);

// Images are reduced by area average, labels by taking the nearest. Throws FaultyData, naming the file, if
// one cannot be read, if image and labels differ in size, or if a pixel has a foreign id.
Photograph read_photograph(const LabelledFile& file, const Reading& reading);

}  // namespace bnlab
