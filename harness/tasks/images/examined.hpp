// All image files of a task, read once to see whether they can be used.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "harness/tasks/data_check.hpp"
#include "harness/tasks/images/pixels.hpp"

namespace bnlab {

// Does work(thread, index) for each index below `count`, on as many threads as there are cores, and returns
// what went wrong, in the order of the indices. Anything but an Error about data is thrown on.
std::vector<DataFault> examine_each(size_t count,
                                    const std::function<void(size_t thread, size_t index)>& work);

// How many threads it uses.
size_t examining_threads();

// Reads photographs without labels.
DataReport examine_images(const std::vector<std::string>& training, const std::vector<std::string>& test,
                          int64_t training_samples);

// What is said of photographs that stand in both splits; nothing where none does.
std::vector<std::string> shared_fact(const std::vector<std::string>& training,
                                     const std::vector<std::string>& test);

// What is worth knowing of photographs, each thing once.
class Remarks {
 public:
  void add(const std::string& file, const Pixels& photograph);  // thread-safe
  std::vector<std::string> facts(size_t all, bool with_labels) const;

 private:
  struct Photographs {
    size_t count = 0;
    std::string first;  // by name
  };
  std::mutex mutex_;
  std::map<std::string, Photographs> of_;  // by remark
  size_t turned_ = 0;
};

}  // namespace bnlab
