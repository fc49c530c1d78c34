// What `bnlab run` asks of photographs with label maps before it starts anything: all of them are read once,
// and what is wrong or worth knowing is told of all together.
#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/support/mapped.hpp"
#include "harness/tasks/images/examined.hpp"
#include "harness/tasks/images/image_file.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab {
namespace {

using Counts = std::array<int64_t, 256>;  // by id

// Pixels of each id in some label maps.
struct Ids {
  Counts pixels{};
  Counts inside{};  // those whose neighbours two pixels away, in all four directions, have the same id
};

void count_ids(const Pixels& labels, Ids& ids) {
  constexpr int64_t kFar = 2;
  const int64_t width = labels.width;
  for (int64_t y = 0; y < labels.height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const uint8_t* at = labels.values.data() + y * width + x;
      ++ids.pixels[*at];
      if (y >= kFar && y + kFar < labels.height && x >= kFar && x + kFar < width && at[kFar] == *at &&
          at[-kFar] == *at && at[kFar * width] == *at && at[-kFar * width] == *at) {
        ++ids.inside[*at];
      }
    }
  }
}

struct SplitCounts {
  Counts pixels{}, inside{};
  std::vector<std::array<int64_t, 2>> sizes;  // images as they are seen; 0, 0 where one could not be read
};

SplitCounts examine_split(const std::vector<LabelledFile>& files, const LabelMap& map,
                          std::vector<DataFault>& faults, Remarks& remarks) {
  SplitCounts counts;
  counts.sizes.resize(files.size());
  std::vector<Ids> of_threads(examining_threads());
  const auto found = examine_each(files.size(), [&](size_t thread, size_t i) {
    const LabelledFile& file = files[i];
    if (!file.fault.message.empty()) throw FaultyData({file.fault});
    std::vector<DataFault> wrong;
    const auto read = [&](const auto& how) {
      try {
        return how();
      } catch (const FaultyData& error) {
        wrong.insert(wrong.end(), error.faults().begin(), error.faults().end());
        return Pixels();
      }
    };
    const Pixels image = read([&] { return read_rgb(file.image); });
    const Pixels labels = read([&] { return read_label_ids_of_task(file.labels, map.ids_cure); });
    if (!wrong.empty()) throw FaultyData(std::move(wrong));
    remarks.add(file.image, image);
    counts.sizes[i] = {image.height, image.width};
    check_labels(file, image, labels, map);
    count_ids(labels, of_threads[thread]);
  });
  faults.insert(faults.end(), found.begin(), found.end());
  for (const Ids& ids : of_threads) {
    for (size_t id = 0; id < ids.pixels.size(); ++id) {
      counts.pixels[id] += ids.pixels[id];
      counts.inside[id] += ids.inside[id];
    }
  }
  return counts;
}

std::string size_text(const std::array<int64_t, 2>& size) {
  return std::to_string(size[0]) + "x" + std::to_string(size[1]);
}

void refuse_other_sizes(const std::vector<LabelledFile>& files, const SplitCounts& counts,
                        std::vector<DataFault>& faults) {
  size_t first = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (counts.sizes[first][0] == 0) {
      first = i;
    } else if (counts.sizes[i][0] != 0 && counts.sizes[i] != counts.sizes[first]) {
      faults.push_back({"photographs of another size",
                        files[i].image + ": expected the size of " + files[first].image + ", " +
                            size_text(counts.sizes[first]) + ", got " + size_text(counts.sizes[i]) +
                            "; all images of a split need one size"});
    }
  }
}

std::vector<int64_t> pixels_of_classes(const PhotographSet& set, const SplitCounts& counts) {
  std::vector<int64_t> pixels(set.classes.size());
  for (size_t id = 0; id < counts.pixels.size(); ++id)
    if (const int16_t of_id = set.labels.class_of[id]; of_id >= 0)
      pixels[static_cast<size_t>(of_id)] += counts.pixels[id];
  return pixels;
}

void tell_absent_classes(const PhotographSet& set, const SplitCounts& counts, const std::string& split,
                         const std::string& consequence, std::vector<std::string>& facts) {
  const std::vector<int64_t> pixels = pixels_of_classes(set, counts);
  std::vector<std::string> absent;
  for (size_t c = 0; c < pixels.size(); ++c)
    if (pixels[c] == 0) absent.push_back(set.classes[c]);
  if (!absent.empty()) {
    facts.push_back(std::to_string(absent.size()) + " of " + std::to_string(pixels.size()) +
                    " classes occur in no label of the " + split + " split: " + joined(absent) + "; " +
                    consequence);
  }
}

// Ids of classes that are nowhere wider than a line: as data sets mark the borders of objects.
void tell_lines(const PhotographSet& set, const SplitCounts& training, std::vector<std::string>& facts) {
  for (const size_t id : {size_t{0}, size_t{255}}) {
    const int16_t of_id = set.labels.class_of[id];
    if (of_id >= 0 && training.pixels[id] > 0 && training.inside[id] == 0) {
      const std::string text = std::to_string(id);
      facts.push_back("id " + text + " is the class " + set.classes[static_cast<size_t>(of_id)] +
                      ", but is nowhere more than 4 pixels wide: if it marks borders or unknown pixels, say "
                      "that it is void (of the task folder: \"mapping\": {\"" +
                      text + "\": \"void\", ...})");
    }
  }
}

DataReport report_on(const PhotographSet& set) {
  DataReport report;
  report.training_samples = std::ssize(set.training);
  Remarks remarks;
  const SplitCounts training = examine_split(set.training, set.labels, report.faults, remarks);
  const SplitCounts test = examine_split(set.test, set.labels, report.faults, remarks);
  if (set.one_size) {
    refuse_other_sizes(set.training, training, report.faults);
    refuse_other_sizes(set.test, test, report.faults);
  }
  if (report.faults.empty()) {
    const std::string why = why_too_few_classes(set.training, pixels_of_classes(set, training));
    if (!why.empty()) report.faults.push_back({"labels of one class alone", why});
  }
  if (report.faults.empty()) {
    report.facts = remarks.facts(set.training.size() + set.test.size(), true);
    tell_absent_classes(set, training, "training", "nothing teaches them", report.facts);
    tell_absent_classes(set, test, "test", "means over classes leave them out", report.facts);
    tell_lines(set, training, report.facts);
    const auto images = [](const LabelledFile& file) { return file.image; };
    std::ranges::copy(shared_fact(mapped(set.training, images), mapped(set.test, images)),
                      std::back_inserter(report.facts));
  }
  return report;
}

// The pairs, and what ids mean: the rest of the options changes no answer.
std::string question_of(const PhotographSet& set) {
  std::string text = set.one_size ? "one size" : "any sizes";
  for (const auto* side : {&set.training, &set.test}) {
    text += "\nsplit";
    for (const LabelledFile& file : *side) text += '\n' + file.name;
  }
  for (const int16_t of_id : set.labels.class_of) text += '\n' + std::to_string(of_id);
  return text + '\n' + joined(set.classes, "\n");
}

}  // namespace

std::string why_too_few_classes(const std::vector<LabelledFile>& training,
                                const std::vector<int64_t>& class_pixels) {
  const auto shown = std::ranges::find_if(class_pixels, [](int64_t count) { return count > 0; });
  if (training.empty() || std::ranges::count(class_pixels, 0) < std::ssize(class_pixels) - 1) return "";
  return training.at(0).labels + " and the other training labels show " +
         (shown == class_pixels.end()
              ? "no class"
              : "class " + std::to_string(shown - class_pixels.begin()) + " and no other") +
         "; a mask of 0 and 255 needs \"void\": [], \"mapping\": {\"0\": 0, \"255\": 1}";
}

DataCheck check_of(PhotographSet set) {
  std::string question = question_of(set);
  return {std::move(question), [set = std::move(set)] { return report_on(set); }};
}

}  // namespace bnlab
