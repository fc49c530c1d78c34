// Which files a task reads, told without reading them. A task on files says it beside its registration:
//
//   const TaskFiles files{"camvid", [](const Options& options, const std::string& data_dir) { ...; return paths; }};
//
// A task that says nothing makes its data itself. No LibTorch here: whoever starts runs asks before any rank exists.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"

namespace bnlab {

class TaskFiles {
 public:
  template <class List>
  TaskFiles(const std::string& task, List list) : TaskFiles(task, asked(+list)) {}

 private:
  using Asked = std::function<std::vector<std::string>(const Json& task, const std::string& data_dir)>;

  template <class Options>
  static Asked asked(std::vector<std::string> (*list)(const Options&, const std::string&)) {
    return [list](const Json& task, const std::string& data_dir) {
      return list(read_options<Options>(task), data_dir);
    };
  }
  TaskFiles(const std::string& task, Asked asked);
};

// Whether a resolved task reads files.
bool reads_files(const Json& task);
// Paths below the data folder, of the training and of the test; none where the task reads no files. Throws the Error with
// which the task itself would refuse: files that are missing, a spec that leads out of the data folder.
std::vector<std::string> files_of_task(const Json& task, const std::string& data_dir);

}  // namespace bnlab
