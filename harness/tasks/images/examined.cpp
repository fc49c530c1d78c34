#include "harness/tasks/images/examined.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <set>
#include <thread>

#include "harness/support/cores.hpp"
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
  Remarks remarks;
  DataReport report;
  report.training_samples = training_samples;
  report.faults =
      examine_each(files.size(), [&](size_t, size_t i) { remarks.add(files[i], read_rgb(files[i])); });
  report.facts = remarks.facts(files.size(), false);
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

void Remarks::add(const std::string& file, const Pixels& photograph) {
  const std::lock_guard lock(mutex_);
  turned_ += photograph.orientation == 1 ? 0 : 1;
  if (photograph.remark.empty()) return;
  Photographs& alike = of_[photograph.remark];
  if (++alike.count == 1 || file < alike.first) alike.first = file;
}

std::vector<std::string> Remarks::facts(size_t all, bool with_labels) const {
  std::vector<std::string> facts;
  const auto fact = [&](size_t count, const std::string& remark) {
    facts.push_back(std::to_string(count) + " of " + std::to_string(all) + " photographs " + remark);
  };
  if (turned_ > 0) {
    fact(turned_,
         std::string("are turned upright by their EXIF orientation when they are read") +
             (with_labels ? "; labels have to be drawn on the upright ones, as labelling tools show them"
                          : ""));
  }
  for (const auto& [remark, alike] : of_) fact(alike.count, remark + " (" + alike.first + ")");
  return facts;
}

}  // namespace bnlab
