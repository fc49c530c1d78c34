// Cityscapes: street scenes from 50 cities, 19 classes and void (Cordts et al., "The Cityscapes dataset for
// semantic urban scene understanding", CVPR 2016). Below the root:
//   leftImg8bit/SPLIT/CITY/NAME_leftImg8bit.png
//   gtFine/SPLIT/CITY/NAME_gtFine_labelIds.png        ids 0 to 33, of which 19 are classes
//   gtFine/SPLIT/CITY/NAME_gtFine_labelTrainIds.png   classes 0 to 18 and 255, once they are converted
// The city is the group: metrics are also given city by city.
#include "harness/components/registry.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::cityscapes {

namespace fs = std::filesystem;

// Class k is the id kIds[k] of labelIds files and the id k of labelTrainIds files.
const std::vector<std::string> kClasses = {"road", "sidewalk",      "building",     "wall",       "fence",
                                           "pole", "traffic light", "traffic sign", "vegetation", "terrain",
                                           "sky",  "person",        "rider",        "car",        "truck",
                                           "bus",  "train",         "motorcycle",   "bicycle"};
constexpr std::array<size_t, 19> kIds = {7,  8,  11, 12, 13, 17, 19, 20, 21, 22,
                                         23, 24, 25, 26, 27, 28, 31, 32, 33};
constexpr size_t kLastId = 33;
constexpr const char* kCure =
    "; unpack leftImg8bit_trainvaltest.zip and gtFine_trainvaltest.zip here, or name another kind of "
    "`labels`";

BNLAB_CHOICE(Labels, labelIds, labelTrainIds)

LabelMap labels_of(Labels labels) {
  if (labels == Labels::labelTrainIds) return label_map(std::ssize(kClasses), {255});
  LabelMap map = label_map(0, {});
  std::fill_n(map.class_of.begin(), kLastId + 1, static_cast<int16_t>(Task::kVoid));
  for (size_t c = 0; c < kIds.size(); ++c) map.class_of.at(kIds[c]) = static_cast<int16_t>(c);
  map.cure = "say \"labels\": \"labelTrainIds\" if the files are of that kind";
  return map;
}

std::vector<LabelledFile> list_files(const fs::path& folder, Labels labels, const std::string& split,
                                     const std::string& key) {
  auto files =
      pair_files({below(folder / "leftImg8bit", split, key), "_leftImg8bit.png"},
                 {below(folder / "gtFine", split, key), "_gtFine_" + name_of(labels) + ".png"}, kCure);
  for (LabelledFile& file : files) file.group = fs::path(file.name).parent_path().generic_string();
  return files;
}

struct Options : PhotographOptions {
  Options() { crop = {512, 1024}; }

  std::string root = "cityscapes";
  Labels labels = Labels::labelIds;
  std::string train_split = "train", test_split = "val";

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty();
    option("labels", labels, "which label files: as published, or with the ids of the 19 classes");
    option("train_split", train_split, "folder of the training split").not_empty();
    option("test_split", test_split, "folder of the split that is evaluated").not_empty();
    PhotographOptions::describe(option);
  }

  PhotographSet photographs(const std::string& data_dir) const {
    const fs::path folder = data_root(data_dir, "cityscapes", root);
    return {.training = list_files(folder, labels, train_split, "train_split"),
            .test = list_files(folder, labels, test_split, "test_split"),
            .classes = kClasses,
            .labels = labels_of(labels),
            .groups = true,
            .one_size = true};
  }
  Paths files(const std::string& data_dir) const { return paths_of(photographs(data_dir)); }
  std::vector<std::string> sort_keys() const { return {"city", "brightness", "class"}; }
  std::vector<std::string> test_sort_keys() const { return {"city", "brightness"}; }
};

const Registered<Task> entry{
    {.name = "cityscapes",
     .summary = "Cityscapes photographs of streets, 19 classes, from its own folders",
     .source = "Cordts et al., CVPR 2016"},
    make<Task, PhotographTaskOf<Options>>};

}  // namespace bnlab::cityscapes
