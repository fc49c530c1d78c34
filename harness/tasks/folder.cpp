// Anybody's photographs with label maps. Below the root, the images and labels of a split in one of these layouts,
//   SPLIT/images/NAME.jpg  SPLIT/labels/NAME.png      (train and test)
//   images/SPLIT/NAME.jpg  labels/SPLIT/NAME.png
//   images/NAME.jpg        labels/NAME.png            (no splits: a share of the images is held out for the test)
// with these names of folders or others, or list files with lines `image label` or `name`.
#include <algorithm>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::folder {

namespace fs = std::filesystem;

constexpr int64_t kMostClasses = 256;
constexpr const char* kCure =
    "; give labels the names of their images, or say how the names end (`image_suffix`, `label_suffix`)";

BNLAB_CHOICE(Groups, none, prefix, folder)

// A number of classes, or their names.
struct Classes {
  int64_t count = 0;
  std::vector<std::string> names;
};

void declare(Parameter& parameter, const Classes&) {
  parameter.kind = Parameter::Kind::text;
  parameter.list = true;
}

void read(const Json& value, Classes& classes) {
  if (value.is_array()) {
    classes.names = value.get<std::vector<std::string>>();
  }
  classes.count = value.is_array() ? static_cast<int64_t>(value.size()) : value.get<int64_t>();
}

struct Options : PhotographOptions {
  Options() {
    crop = {96, 96};
    test_multiple = 32;
  }

  std::string root;
  Classes classes;
  std::vector<int64_t> void_ids = {255};
  Json mapping;
  std::string images = "images", labels = "labels", image_suffix, label_suffix;
  std::string train_split = "train", test_split = "test";
  std::optional<std::string> train_list, test_list;
  double test_share = 0.2;
  Groups groups = Groups::none;

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty().needed();
    option("classes", classes, "how many classes the labels show, or their names in the order of their ids")
        .or_single()
        .at_least(2)
        .at_most(kMostClasses)
        .not_empty()
        .needed();
    option("void", void_ids, "ids of pixels that count nowhere").at_least(0).at_most(255);
    option(
        "mapping", mapping,
        "class of each id, by number or name, or \"void\": {\"7\": 0, \"8\": \"road\", \"other\": \"void\"}; "
        "empty: ids are classes");
    option("images", images, "folder of the images, in the split's or around it").not_empty();
    option("labels", labels, "folder of the label maps, likewise").not_empty();
    option("image_suffix", image_suffix, "what follows the common name in images: \"_rgb\", \"_rgb.png\"");
    option("label_suffix", label_suffix, "what follows the common name in label maps");
    option("train_split", train_split, "folder of the training split").not_empty();
    option("test_split", test_split, "folder of the split that is evaluated").not_empty();
    option("train_list", train_list, "file with lines `image label` or `name`, in place of the split");
    option("test_list", test_list, "the same for the test");
    option("test_share", test_share, "share of the images held out where there is no test split")
        .above(0)
        .below(1);
    option("groups", groups,
           "what tells an image's group: prefix (its name before the first _), folder (the one it is in)");
    PhotographOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const;
};

// The class that a mapping's value names; nothing if it names none.
std::optional<int16_t> class_of(const Json& value, const Classes& classes) {
  if (value == "void") {
    return static_cast<int16_t>(Task::kVoid);
  }
  for (size_t c = 0; c < classes.names.size(); ++c) {
    if (value == classes.names[c]) {
      return static_cast<int16_t>(c);
    }
  }
  const bool is_class = value.is_number_integer() && value >= 0 && value < classes.count;
  return is_class ? std::optional(value.get<int16_t>()) : std::nullopt;
}

bool is_id(const std::string& text) {
  return !text.empty() && text.size() <= 3 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; }) && std::stoi(text) <= 255 &&
         std::to_string(std::stoi(text)) == text;
}

void Options::check(const RunOutline& run, Problems& problems) const {
  PhotographOptions::check(run, problems);
  if (classes.count < 2 || classes.count > kMostClasses) {
    problems.add("classes", "expected 2 to " + std::to_string(kMostClasses) + " names, got " +
                                std::to_string(classes.count));
  }
  for (const auto& [id, value] : mapping.items()) {
    const std::string path = key_path("mapping", id);
    if (id != "other" && !is_id(id)) {
      problems.add(path, "expected an id from \"0\" to \"255\", or \"other\"");
    }
    if (!class_of(value, classes)) {
      problems.add(path, "expected a class from 0 to " + std::to_string(classes.count - 1) +
                             (classes.names.empty() ? "" : ", its name") + " or \"void\", got " +
                             shown(value));
    }
  }
  if (test_list && !train_list) {
    problems.add("test_list", "needs train_list");
  }
}

LabelMap labels_of(const Options& options) {
  LabelMap map = label_map(options.mapping.empty() ? options.classes.count : 0, options.void_ids);
  if (options.mapping.contains("other")) {
    const int16_t other = *class_of(options.mapping["other"], options.classes);
    std::ranges::replace(map.class_of, LabelMap::kForeign, other);
  }
  for (const auto& [id, value] : options.mapping.items()) {
    if (id != "other") {
      map.class_of.at(static_cast<size_t>(std::stoi(id))) = *class_of(value, options.classes);
    }
  }
  map.cure = "name the id in `void`, or its class in `mapping`, or correct `classes`";
  return map;
}

// The folder of a split's images or labels; nothing where no layout has it.
std::optional<fs::path> split_folder(const fs::path& root, const std::string& split,
                                     const std::string& folder) {
  for (const fs::path& path : {root / split / folder, root / folder / split}) {
    if (fs::is_directory(path)) {
      return path;
    }
  }
  return std::nullopt;
}

std::vector<LabelledFile> pairs(const Options& options, const fs::path& images, const fs::path& labels) {
  return pair_files({images, options.image_suffix}, {labels, options.label_suffix}, kCure);
}

std::vector<LabelledFile> split_files(const Options& options, const fs::path& root,
                                      const std::string& split) {
  const fs::path images = *split_folder(root, split, options.images);
  const bool split_first = images == root / split / options.images;
  return pairs(options, images, split_first ? root / split / options.labels : root / options.labels / split);
}

std::vector<LabelledFile> list_files(const Options& options, const fs::path& root, const std::string& list,
                                     const std::string& key) {
  return read_list(below(root, list, key), root, {root / options.images, options.image_suffix},
                   {root / options.labels, options.label_suffix});
}

void set_groups(std::vector<LabelledFile>& files, Groups groups) {
  for (LabelledFile& file : files) {
    file.group = groups == Groups::prefix   ? prefix_of(file.name)
                 : groups == Groups::folder ? fs::path(file.name).parent_path().generic_string()
                                            : "";
  }
}

// A test split of another name than the spec's is more likely a mistake than a wish to hold images out.
void check_no_other_test(const Options& options, const fs::path& root) {
  for (const std::string name : {"val", "valid", "validation", "test", "testing"}) {
    if (split_folder(root, name, options.images)) {
      throw Error(Error::Kind::data, root.string() + ": there is no split " + options.test_split +
                                         ", but one named " + name + "; say \"test_split\": \"" + name +
                                         "\"");
    }
  }
}

Split all_files(const Options& options, const fs::path& root) {
  Split split;
  bool has_test = true;
  if (options.train_list) {
    split.training = list_files(options, root, *options.train_list, "train_list");
    has_test = options.test_list.has_value();
    if (has_test) {
      split.test = list_files(options, root, *options.test_list, "test_list");
    }
  } else if (split_folder(root, options.train_split, options.images)) {
    split.training = split_files(options, root, options.train_split);
    has_test = split_folder(root, options.test_split, options.images).has_value();
    if (has_test) {
      split.test = split_files(options, root, options.test_split);
    } else {
      check_no_other_test(options, root);
    }
  } else {
    split.training = pairs(options, root / options.images, root / options.labels);
    has_test = false;
  }
  set_groups(split.training, options.groups);
  set_groups(split.test, options.groups);
  return has_test ? split : hold_out(split.training, options.test_share);
}

PhotographSet files(const Options& options, const Task::Context& context) {
  const fs::path root = data_root(context, "folder", options.root);
  for (const auto& [key, folder] : {std::pair("images", options.images),
                                    {"labels", options.labels},
                                    {"train_split", options.train_split},
                                    {"test_split", options.test_split}}) {
    below(root, folder, key);
  }
  Split split = all_files(options, root);
  return {.training = std::move(split.training),
          .test = std::move(split.test),
          .classes = options.classes.count,
          .labels = labels_of(options),
          .group = options.groups == Groups::none ? "" : "group"};
}

class Folder : public PhotographTask {
 public:
  using Options = folder::Options;
  Folder(const Options& options, const Context& context)
      : PhotographTask(files(options, context), options, context) {}
};

const Registered<Task> entry{
    {.name = "folder", .summary = "your own photographs and label maps, from a folder or list files"},
    bnlab::make<Task, Folder>};

}  // namespace bnlab::folder
