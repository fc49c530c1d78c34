// PASCAL VOC 2012 segmentation: 20 kinds of objects and the background (Everingham et al., "The PASCAL visual
// object classes challenge: a retrospective", IJCV 2015), with the labels that Hariharan et al. added
// ("Semantic contours from inverse detectors", ICCV 2011). Below the root:
//   JPEGImages/NAME.jpg  SegmentationClass/NAME.png  SegmentationClassAug/NAME.png
//   ImageSets/Segmentation/{train,val,trainval,trainaug}.txt
//     with lines NAME, or `/JPEGImages/NAME.jpg /FOLDER/NAME.png`
// Lists whose names hold "aug" take their labels from SegmentationClassAug. Label files are palette or grey
// PNGs: the palette's index is the class, 255 is void.
#include <set>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/tasks/photographs.hpp"

namespace bnlab::voc {

namespace fs = std::filesystem;

const std::vector<std::string> kClasses = {
    "background", "aeroplane", "bicycle",     "bird",  "boat",        "bottle", "bus",
    "car",        "cat",       "chair",       "cow",   "diningtable", "dog",    "horse",
    "motorbike",  "person",    "pottedplant", "sheep", "sofa",        "train",  "tvmonitor"};
constexpr int64_t kVoidId = 255;

// The file that lists a split.
fs::path list_of(const fs::path& root, const std::string& split, const std::string& key) {
  const fs::path lists = root / "ImageSets" / "Segmentation";
  fs::path list = below(lists, split + ".txt", key);
  if (split == "trainaug" && !fs::exists(list)) list = lists / "train_aug.txt";  // its other common name
  if (!fs::exists(list)) {
    throw Error(Error::Kind::data,
                (lists / (split + ".txt")).string() + ": does not exist; name a list of this folder as `" +
                    key + "` (\"train\" comes with VOC itself, \"trainaug\" with the added labels)");
  }
  return list;
}

std::vector<LabelledFile> list_files(const fs::path& root, const std::string& split, const std::string& key) {
  const fs::path list = list_of(root, split, key);
  const bool added = split.find("aug") != std::string::npos;
  return read_list(list, root, {root / "JPEGImages"},
                   {root / (added ? "SegmentationClassAug" : "SegmentationClass")});
}

// The added labels cover images of VOC's val as well: a list made of all of them would train on the test.
void check_apart(const std::vector<LabelledFile>& training, const std::vector<LabelledFile>& test) {
  std::set<std::string> tested;
  for (const LabelledFile& file : test) tested.insert(file.image);
  for (const LabelledFile& file : training) {
    if (file.fault.message.empty() && tested.count(file.image) > 0) {
      throw Error(Error::Kind::data, file.image +
                                         ": is in the training list and in the test list; take the "
                                         "lines of the test list out of the training list");
    }
  }
}

struct Options : PhotographOptions {
  Options() { crop = {473, 473}; }

  std::string root = "VOCdevkit/VOC2012";
  std::string train_split = "trainaug", test_split = "val";

  void describe(OptionVisitor& option) {
    option("root", root, "folder of the data set, below the data folder").not_empty();
    option("train_split", train_split, "list of ImageSets/Segmentation to train on").not_empty();
    option("test_split", test_split, "list of ImageSets/Segmentation that is evaluated").not_empty();
    PhotographOptions::describe(option);
  }

  PhotographSet photographs(const std::string& data_dir) const {
    const fs::path folder = data_root(data_dir, "voc", root);
    PhotographSet set{.training = list_files(folder, train_split, "train_split"),
                      .test = list_files(folder, test_split, "test_split"),
                      .classes = kClasses,
                      .labels = label_map(std::ssize(kClasses), {kVoidId})};
    check_apart(set.training, set.test);
    return set;
  }
  Paths files(const std::string& data_dir) const {
    Paths paths = paths_of(photographs(data_dir));
    const fs::path folder = data_root(data_dir, "voc", root);
    paths.push_back(list_of(folder, train_split, "train_split").string());
    paths.push_back(list_of(folder, test_split, "test_split").string());
    return paths;
  }
};

const Registered<Task> entry{
    {.name = "voc",
     .summary = "PASCAL VOC 2012 photographs, 20 kinds of objects and background, by lists",
     .source = "Everingham et al., IJCV 2015; added labels: Hariharan et al., ICCV 2011"},
    make<Task, PhotographTaskOf<Options>>};

}  // namespace bnlab::voc
