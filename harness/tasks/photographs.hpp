// What the segmentation tasks on files share: photographs with label maps are read and checked, training takes
// random crops, evaluation takes whole images. A task of its own adds little more than the list of its files and
// what their label ids mean (folder.cpp, camvid.cpp).
//
// Images may have several sizes. Test images are padded at the bottom and on the right to the largest height and
// width among them, or to `test_size`, and on to a multiple of `test_multiple`, with void labels and the mean colour: so
// every pixel of the split counts once.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/tasks/images/augmentation.hpp"
#include "harness/tasks/images/labelled_images.hpp"
#include "harness/tasks/segmentation.hpp"

namespace bnlab {

BNLAB_CHOICE(Normalisation, own, imagenet)
BNLAB_CHOICE(ClassWeights, given, median_frequency)

// The options that every task on photographs takes, after its own.
struct PhotographOptions : SegmentationOptions {
  double scale = 1;
  std::array<int64_t, 2> crop = {96, 128};
  std::optional<std::array<int64_t, 2>> test_size;
  int64_t test_multiple = 1;
  double random_scale_min = 0.5, random_scale_max = 2;
  Json augment = "plain";
  Normalisation normalisation = Normalisation::own;
  int64_t cache_mib = 4096;
  ClassWeights class_weights = ClassWeights::given;

  void describe(OptionVisitor& option);
  ImageSizes image_sizes() const;  // the test images tell theirs, if no option does
  void check(const RunOutline&, Problems& problems) const;
};

// The files of a task and what they hold.
struct PhotographSet {
  std::vector<LabelledFile> training;
  std::vector<LabelledFile> test;
  std::vector<std::string> classes;  // their names
  LabelMap labels;
  std::string group = {};  // what a file's group is called ("drive"), if files have groups
  bool one_size = false;   // whether images of several sizes are a mistake
};

// The paths of all images and labels, for TaskFiles (harness/components/task_files.hpp).
std::vector<std::string> paths_of(const PhotographSet& set);

// The folder that holds the files of a task: `root` below --data. Throws Error (usage) if there is no data folder.
std::filesystem::path data_root(const Task::Context& context, const std::string& task,
                                const std::string& root);

class PhotographTask : public SegmentationTask {
 public:
  const std::vector<std::string>& class_names() const { return class_names_; }
  const LabelledImages& training_photographs() const { return train_; }
  const LabelledImages& test_photographs() const { return test_; }
  std::array<int64_t, 2> training_image_size() const override { return crop_; }
  std::array<int64_t, 2> test_image_size() const override { return test_size_; }
  int64_t training_samples() const override { return train_.count(); }
  int64_t test_samples() const override { return test_.count(); }
  bool may_have_void() const override { return true; }
  const Json& loss() const override { return loss_; }

  Examples training(const std::vector<Draw>& draws) const override;
  Examples test(int64_t begin, int64_t count) const override;

  std::vector<std::string> sort_keys() const override;
  // The group: its place among the groups' names in order; brightness: the mean of the photograph's bytes;
  // class: the one that most pixels show, void apart.
  std::vector<double> sort_values(const std::string& key) const override;

 protected:
  PhotographTask(const PhotographSet& set, const PhotographOptions& options, const Context& context);

 private:
  uint64_t seed_;
  std::array<int64_t, 2> crop_, test_size_;
  double scale_min_, scale_max_;
  std::unique_ptr<Augmentation> augmentation_;
  std::string group_;
  std::vector<std::string> class_names_;
  Json loss_;
  LabelledImages train_, test_;
  ChannelMoments moments_;  // that images are normalised with
};

}  // namespace bnlab
