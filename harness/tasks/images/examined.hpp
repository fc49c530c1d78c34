// All image files of a task, read once to see whether they can be used.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "harness/tasks/data_check.hpp"

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

// What is said of photographs that were turned when they were read; nothing where none was.
std::vector<std::string> turned_fact(size_t turned, size_t all, bool with_labels);

}  // namespace bnlab
