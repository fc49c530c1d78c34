// Anybody's photographs with label maps. Below the root, images and labels of a split in one of these:
//   SPLIT/images/NAME.jpg  SPLIT/labels/NAME.png      (train and test)
//   images/SPLIT/NAME.jpg  labels/SPLIT/NAME.png
//   images/NAME.jpg        labels/NAME.png            (no splits: a share is held out for the test)
// with these names of folders or others, or list files with lines `image label` or `name`.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/json.hpp"
#include "harness/support/shell.hpp"
#include "harness/tasks/images/photograph.hpp"
#include "harness/tasks/photographs.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab::folder {

namespace fs = std::filesystem;

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
  if (value.is_array()) classes.names = value.get<std::vector<std::string>>();
  classes.count = value.is_array() ? std::ssize(classes.names) : value.get<int64_t>();
}

// The options that say what the ids of label files mean: how many classes there are or what they are called,
// which ids are void, and, where ids are not classes, a mapping.
struct LabelOptions {
  Classes classes;
  std::vector<int64_t> void_ids = {255};
  Json mapping;  // {"7": 0, "8": "road", "other": "void"}

  void describe(OptionVisitor& option);
  void check(Problems& problems) const;

  LabelMap map() const;
  std::vector<std::string> names() const;  // "0", "1", ... where they have none
};

constexpr int64_t kMostClasses = 256;
constexpr const char* kOther = "other";

// The class that a mapping's value names; nothing if it names none.
std::optional<int16_t> class_of(const Json& value, const Classes& classes) {
  if (value == "void") return static_cast<int16_t>(Task::kVoid);
  for (size_t c = 0; c < classes.names.size(); ++c)
    if (value == classes.names[c]) return static_cast<int16_t>(c);
  const bool is_class = value.is_number_integer() && value >= 0 && value < classes.count;
  return is_class ? std::optional(value.get<int16_t>()) : std::nullopt;
}

bool is_id(const std::string& text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && text.size() <= 3 && std::stoi(text) <= 255 && std::to_string(std::stoi(text)) == text;
}

void LabelOptions::describe(OptionVisitor& option) {
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
}

void LabelOptions::check(Problems& problems) const {
  if (classes.count < 2 || classes.count > kMostClasses) {
    problems.add("classes", "expected 2 to " + std::to_string(kMostClasses) + " names, got " +
                                std::to_string(classes.count));
  }
  for (const auto& [id, value] : mapping.items()) {
    const std::string path = key_path("mapping", id);
    if (id != kOther && !is_id(id)) problems.add(path, "expected an id from \"0\" to \"255\", or \"other\"");
    if (!class_of(value, classes)) {
      problems.add(path, "expected a class from 0 to " + std::to_string(classes.count - 1) +
                             (classes.names.empty() ? "" : ", its name") + " or \"void\", got " +
                             shown(value));
    }
  }
}

LabelMap LabelOptions::map() const {
  LabelMap map = label_map(mapping.empty() ? classes.count : 0, void_ids);
  if (mapping.contains(kOther))
    std::ranges::replace(map.class_of, LabelMap::kForeign, *class_of(mapping[kOther], classes));
  for (const auto& [id, value] : mapping.items())
    if (id != kOther) map.class_of.at(static_cast<size_t>(std::stoi(id))) = *class_of(value, classes);
  map.cure = "name the id in `void`, or its class in `mapping`, or correct `classes`";
  return map;
}

std::vector<std::string> LabelOptions::names() const {
  std::vector<std::string> all = classes.names;
  for (int64_t c = std::ssize(all); c < classes.count; ++c) all.push_back(std::to_string(c));
  return all;
}

struct Options : PhotographOptions {
  Options() { crop = {96, 96}; }

  std::string root;
  LabelOptions meaning;
  std::string images = "images", labels = "labels", image_suffix, label_suffix;
  std::string train_split = "train", test_split = "test";
  std::optional<std::string> train_list, test_list;
  double test_share = 0.2;
  Groups groups = Groups::none;

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty().needed();
    meaning.describe(option);
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

  PhotographSet photographs(const std::string& data_dir) const;
  Paths files(const std::string& data_dir) const;
  std::vector<std::string> sort_keys() const { return with_group(PhotographOptions::sort_keys()); }
  std::vector<std::string> test_sort_keys() const { return with_group(PhotographOptions::test_sort_keys()); }
  std::vector<std::string> with_group(std::vector<std::string> keys) const {
    if (groups != Groups::none) keys.insert(keys.begin(), "group");
    return keys;
  }

  void check(const RunOutline& run, Problems& problems) const {
    PhotographOptions::check(run, problems);
    meaning.check(problems);
    if (test_list && !train_list) problems.add("test_list", "needs train_list");
    const Options standard;
    const auto refuse_unused = [&](const char* key, bool changed, const char* beside) {
      if (changed) problems.add(key, std::string("has no effect beside ") + beside + "; leave it out");
    };
    if (train_list) {
      refuse_unused("train_split", train_split != standard.train_split, "train_list");
      refuse_unused("test_split", test_split != standard.test_split, "train_list");
    }
    if (test_list) refuse_unused("test_share", test_share != standard.test_share, "test_list");
  }
};

// The folder of a split's images or labels; nothing where no layout has it.
std::optional<fs::path> split_folder(const fs::path& root, const std::string& split,
                                     const std::string& folder) {
  for (const fs::path& path : {root / split / folder, root / folder / split})
    if (fs::is_directory(path)) return path;
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

// Without a training split all images are one set. Where splits lie there, or are asked for, test images
// would be trained on.
void check_no_splits(const Options& options, const fs::path& root) {
  std::vector<std::string> there;
  for (const std::string name : {"train", "training", "val", "valid", "validation", "test", "testing"})
    if (split_folder(root, name, options.images)) there.push_back(name);
  const Options standard;
  const bool asked = options.train_split != standard.train_split || options.test_split != standard.test_split;
  if (there.empty() && !asked) return;
  throw Error(
      Error::Kind::data,
      root.string() + ": there is no split " + options.train_split +
          (there.empty()
               ? "; leave train_split and test_split out to hold a share of all images out for the test"
               : ", but " + joined(there) +
                     "; name the one to train on in train_split, and the other in test_split"));
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
    if (has_test) split.test = list_files(options, root, *options.test_list, "test_list");
  } else if (split_folder(root, options.train_split, options.images)) {
    split.training = split_files(options, root, options.train_split);
    has_test = split_folder(root, options.test_split, options.images).has_value();
    if (has_test)
      split.test = split_files(options, root, options.test_split);
    else
      check_no_other_test(options, root);
  } else {
    check_no_splits(options, root);
    split.training = pairs(options, root / options.images, root / options.labels);
    has_test = false;
  }
  set_groups(split.training, options.groups);
  set_groups(split.test, options.groups);
  return has_test ? split : hold_out(split.training, options.test_share);
}

// The command that makes ids of all label maps, so that a colour has one id in both splits, and the key that
// takes them.
std::string ids_cure(const Options& options, const fs::path& root) {
  std::vector<std::string> folders;
  for (const fs::path& around : {root / options.train_split, root / options.test_split, root}) {
    const std::string labels = (around / options.labels).string();
    if (fs::is_directory(labels) && (around != root || folders.empty()))
      folders.insert(folders.end(), {labels, labels + "_ids"});
  }
  if (folders.empty()) return "";
  return "this makes ids of all, or asks which colour is which id: " +
         shell_command("bnlab labels", folders) +
         ", and this takes them: \"labels\": " + shown(options.labels + "_ids");
}

PhotographSet Options::photographs(const std::string& data_dir) const {
  const fs::path top = data_root(data_dir, "folder", root);
  if (!fs::exists(top))
    throw Error(Error::Kind::data, top.string() + ": no such folder; --data names the folder around it");
  for (const auto& [key, folder] : {std::pair("images", images),
                                    {"labels", labels},
                                    {"train_split", train_split},
                                    {"test_split", test_split}}) {
    below(top, folder, key);
  }
  Split split = all_files(*this, top);
  LabelMap map = meaning.map();
  map.ids_cure = ids_cure(*this, top);
  return {.training = std::move(split.training),
          .test = std::move(split.test),
          .classes = meaning.names(),
          .labels = std::move(map),
          .groups = groups != Groups::none};
}

Paths Options::files(const std::string& data_dir) const {
  Paths paths = paths_of(photographs(data_dir));
  for (const auto& list : {train_list, test_list})
    if (list) paths.push_back((data_root(data_dir, "folder", root) / *list).string());
  return paths;
}

void check_several_classes(const LabelledImages& set) {
  const std::string why = why_too_few_classes(set.files(), class_pixels(set.summaries()));
  if (!why.empty()) throw Error(Error::Kind::data, why);
}

class Folder : public PhotographTaskOf<Options> {
 public:
  Folder(const Options& options, const Context& context) : PhotographTaskOf(options, context) {
    check_several_classes(training_photographs());
  }
};

const Registered<Task> entry{
    {.name = "folder", .summary = "your own photographs and label maps, from a folder or list files"},
    bnlab::make<Task, Folder>};

}  // namespace bnlab::folder
