#include "harness/tasks/images/examined.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <set>
#include <thread>

#include "harness/cores.hpp"
#include "harness/tasks/images/image_file.hpp"

namespace bnlab {

size_t examining_threads() {
  return static_cast<size_t>(usable_cores());
}

std::vector<DataFault> examine_each(size_t count,
                                    const std::function<void(size_t thread, size_t index)>& work) {
  std::vector<std::vector<DataFault>> found(count);
  std::vector<std::exception_ptr> unexpected(examining_threads());
  std::atomic<size_t> next = 0;
  const auto examine = [&](size_t thread) {
    try {
      for (size_t i = next++; i < count; i = next++) {
        try {
          work(thread, i);
        } catch (const FaultyData& error) {
          found[i] = error.faults();
        }
      }
    } catch (...) {
      unexpected[thread] = std::current_exception();
      next = count;
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < unexpected.size(); ++thread) threads.emplace_back(examine, thread);
  }
  for (const std::exception_ptr& error : unexpected)
    if (error) std::rethrow_exception(error);
  std::vector<DataFault> faults;
  for (std::vector<DataFault>& of_one : found) std::ranges::move(of_one, std::back_inserter(faults));
  return faults;
}

DataReport examine_images(const std::vector<std::string>& training, const std::vector<std::string>& test,
                          int64_t training_samples) {
  std::vector<std::string> files = training;
  files.insert(files.end(), test.begin(), test.end());
  std::atomic<size_t> turned = 0;
  DataReport report;
  report.training_samples = training_samples;
  report.faults = examine_each(
      files.size(), [&](size_t, size_t i) { turned += read_rgb(files[i]).orientation == 1 ? 0 : 1; });
  report.facts = turned_fact(turned, files.size(), false);
  std::ranges::move(shared_fact(training, test), std::back_inserter(report.facts));
  return report;
}

std::vector<std::string> shared_fact(const std::vector<std::string>& training,
                                     const std::vector<std::string>& test) {
  const std::set<std::string> learned(training.begin(), training.end());
  const auto shared =
      std::ranges::count_if(test, [&](const std::string& file) { return learned.contains(file); });
  if (shared == 0) return {};
  return {std::to_string(shared) + " of the " + std::to_string(test.size()) +
          " test images are training images, too: accuracy tells there what was learned by heart"};
}

std::vector<std::string> turned_fact(size_t turned, size_t all, bool with_labels) {
  if (turned == 0) return {};
  return {std::to_string(turned) + " of " + std::to_string(all) +
          " photographs are turned upright by their EXIF orientation when they are read" +
          (with_labels ? "; labels have to be drawn on the upright ones, as labelling tools show them" : "")};
}

}  // namespace bnlab
