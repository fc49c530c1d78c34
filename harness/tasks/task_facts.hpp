// What is known of a task before its data are read: what its registration says, and what follows from its
// options. Whoever starts runs asks before any rank exists: needs no LibTorch.
#pragma once

#include <concepts>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/labelled.hpp"
#include "harness/tasks/data_check.hpp"

namespace bnlab {

using Paths = std::vector<std::string>;

// The options of a task that names a folder of data also tell which files of it the task reads.
template <class Options>
concept TellsItsFiles = !requires(Options options) { options.root; } ||
                        requires(const Options& options, const std::string& data_dir) {
                          { options.files(data_dir) } -> std::same_as<Paths>;
                        };

struct TaskFacts {
  static constexpr const char* kFamily = "task";

  std::string name;
  std::string summary = {};
  std::string source = {};
  Labelled labelled = Labelled::pixels;

  // The sizes of images that the options tell, those of training first, then those of the test.
  FactOfOptions<ImageSizes> image_sizes = [](const Json&) { return ImageSizes(); };
  // By which the training set can be sorted into shards ("shards": "sorted:KEY"); see Task::sort_values.
  FactOfOptions<std::vector<std::string>> sort_keys = [](const Json&) { return std::vector<std::string>(); };
  // Those of them that are known of a test sample, too, before its label is, so that it can be told to which
  // shard it belongs: the camera, not the class.
  FactOfOptions<std::vector<std::string>> test_sort_keys = [](const Json&) {
    return std::vector<std::string>();
  };
  // The files of training and test, as paths below the data folder. Throws the Error with which the task
  // itself would refuse: files that are missing, a spec that leads out of the data folder. Empty for a task
  // that makes its data itself.
  std::function<Paths(const Json& options, const std::string& data_dir)> files = {};
  // What a look at the contents of these files would find (data_check.hpp). Throws like `files`, but leaves
  // to the look what is wrong with single files. Empty for a task whose files are no images.
  std::function<DataCheck(const Json& options, const std::string& data_dir)> check = {};
  // The folder below which the names of these files count: the data folder, but of a task whose files come
  // with the program.
  std::function<std::string(const Json& options, const std::string& data_dir)> files_below =
      [](const Json&, const std::string& data_dir) { return data_dir; };

  template <Described Options>
  void ask() {
    static_assert(TellsItsFiles<Options>, "options with a `root` need `Paths files(data_dir) const`");
    if constexpr (requires { &Options::image_sizes; }) image_sizes = asked<Options>(&Options::image_sizes);
    if constexpr (requires { &Options::sort_keys; }) sort_keys = asked<Options>(&Options::sort_keys);
    if constexpr (requires { &Options::test_sort_keys; })
      test_sort_keys = asked<Options>(&Options::test_sort_keys);
    if constexpr (requires { &Options::files; }) {
      files = [](const Json& options, const std::string& data_dir) {
        return read_options<Options>(options).files(data_dir);
      };
    }
    if constexpr (requires(const Options& o, const std::string& data_dir) { data_check(o, data_dir); }) {
      check = [](const Json& options, const std::string& data_dir) {
        return data_check(read_options<Options>(options), data_dir);
      };
    }
    if constexpr (requires { &Options::files_below; }) {
      files_below = [](const Json& options, const std::string& data_dir) {
        return read_options<Options>(options).files_below(data_dir);
      };
    }
  }
};

// Null where the task is not known: records may be of one that this program lacks.
inline const TaskFacts* facts_if_any(const Json& task) {
  const About* about = find_registered(TaskFacts::kFamily, task.at("name"));
  return about == nullptr ? nullptr : about->facts_as<TaskFacts>();
}

// Whether a resolved task reads files, as far as is known.
inline bool reads_files(const Json& task) {
  const TaskFacts* facts = facts_if_any(task);
  return facts != nullptr && facts->files != nullptr;
}

inline bool labels_clips(const Json& task) {
  const TaskFacts* facts = facts_if_any(task);
  return facts != nullptr && facts->labelled == Labelled::clips;
}

// The folder below which the names of these files count.
inline std::string folder_of_files(const Json& task, const std::string& data_dir) {
  return reads_files(task) ? facts_of<TaskFacts>(task).files_below(task, data_dir) : data_dir;
}

// The files of a resolved task; none where it reads none.
inline Paths files_of_task(const Json& task, const std::string& data_dir) {
  return reads_files(task) ? facts_of<TaskFacts>(task).files(task, data_dir) : Paths();
}

// Nothing where the task has none to make.
inline std::optional<DataCheck> check_of_task(const Json& task, const std::string& data_dir) {
  const About* about = find_registered(TaskFacts::kFamily, task.at("name"));
  const TaskFacts* facts = about == nullptr ? nullptr : about->facts_as<TaskFacts>();
  return facts == nullptr || !facts->check ? std::nullopt : std::optional(facts->check(task, data_dir));
}

}  // namespace bnlab
