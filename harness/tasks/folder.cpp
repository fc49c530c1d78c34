// Anybody's photographs with label maps. Below the root, images and labels of a split in one of these:
//   SPLIT/images/NAME.jpg  SPLIT/labels/NAME.png      (train and test)
//   images/SPLIT/NAME.jpg  labels/SPLIT/NAME.png
//   images/NAME.jpg        labels/NAME.png            (no splits: a share is held out for the test)
// with these names of folders or others, or list files with lines `image label` or `name`.
#include <algorithm>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/tasks/images/label_options.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::folder {

namespace fs = std::filesystem;

constexpr const char* kCure =
    "; give labels the names of their images, or say how the names end (`image_suffix`, `label_suffix`)";

BNLAB_CHOICE(Groups, none, prefix, folder)

struct Options : PhotographOptions {
  Options() {
    crop = {96, 96};
    test_multiple = 32;
  }

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
  std::vector<std::string> sort_keys() const {
    std::vector<std::string> keys = PhotographOptions::sort_keys();
    if (groups != Groups::none) {
      keys.insert(keys.begin(), "group");
    }
    return keys;
  }

  void check(const RunOutline& run, Problems& problems) const {
    PhotographOptions::check(run, problems);
    meaning.check(problems);
    if (test_list && !train_list) {
      problems.add("test_list", "needs train_list");
    }
  }
};

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

PhotographSet Options::photographs(const std::string& data_dir) const {
  const fs::path top = data_root(data_dir, "folder", root);
  for (const auto& [key, folder] : {std::pair("images", images),
                                    {"labels", labels},
                                    {"train_split", train_split},
                                    {"test_split", test_split}}) {
    below(top, folder, key);
  }
  Split split = all_files(*this, top);
  return {.training = std::move(split.training),
          .test = std::move(split.test),
          .classes = meaning.names(),
          .labels = meaning.map(),
          .groups = groups != Groups::none};
}

Paths Options::files(const std::string& data_dir) const {
  Paths paths = paths_of(photographs(data_dir));
  for (const auto& list : {train_list, test_list}) {
    if (list) {
      paths.push_back((data_root(data_dir, "folder", root) / *list).string());
    }
  }
  return paths;
}

// Training labels of one class alone teach nothing; mostly their ids were misread.
void check_several_classes(const LabelledImages& set) {
  const std::vector<int64_t> pixels = class_pixels(set.summaries());
  const auto shown = std::ranges::find_if(pixels, [](int64_t count) { return count > 0; });
  if (std::ranges::count(pixels, 0) >= std::ssize(pixels) - 1) {
    throw Error(
        Error::Kind::data,
        set.files().at(0).labels + " and the other training labels show " +
            (shown == pixels.end() ? "no class"
                                   : "class " + std::to_string(shown - pixels.begin()) + " and no other") +
            "; a mask of 0 and 255 needs \"void\": [], \"mapping\": {\"0\": 0, \"255\": 1}");
  }
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
