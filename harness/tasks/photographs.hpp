// What the segmentation tasks on files share: photographs with label maps are read and checked, training
// takes random crops, evaluation takes whole images. A task of its own is its options, which list its files
// and say what their label ids mean (camvid.cpp), and its registration with make<Task,
// PhotographTaskOf<Options>>.
//
// Images may have several sizes. Test images come in the order of their sizes, so that those of one size are
// evaluated together, and no image's answer depends on the sizes of others. They are continued at the bottom
// and on the right by their own mirror image, with void labels, as far as the model (ModelFacts) and
// `test_multiple` ask or to `test_size`: every pixel of the split counts once, and a statistic that is taken
// in the evaluation sees nothing but photographs.
#pragma once

#include <concepts>
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

// The files of a task and what they hold.
struct PhotographSet {
  std::vector<LabelledFile> training;
  std::vector<LabelledFile> test;
  std::vector<std::string> classes;  // their names
  LabelMap labels;
  bool groups = false;    // whether the files' groups count: metrics are then also given group by group
  bool one_size = false;  // whether images of several sizes are a mistake
};

// The paths of all images and labels. Throws FaultyData with all pairs that are not whole.
Paths paths_of(const PhotographSet& set);

// What is wrong where training labels show one class alone, of which there are so many pixels: nothing is
// learned of it, and mostly ids were misread. Empty where they show two.
std::string why_too_few_classes(const std::vector<LabelledFile>& training,
                                const std::vector<int64_t>& class_pixels);

// Whether all of its files can be used, and what is worth knowing of them.
DataCheck check_of(PhotographSet set);

// The options that every task on photographs takes, after its own. Those of a task derive from them, with
//   PhotographSet photographs(const std::string& data_dir) const;
//   Paths files(const std::string& data_dir) const;  // paths_of(photographs(data_dir)), and lists of them
//   std::vector<std::string> sort_keys() const;      // where files have groups: first a name for these
//   std::vector<std::string> test_sort_keys() const; // the same of the test files
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
  std::vector<std::string> sort_keys() const { return {"brightness", "class"}; }
  std::vector<std::string> test_sort_keys() const { return {"brightness"}; }
  void check(const RunOutline&, Problems& problems) const;
};

class PhotographTask : public SegmentationTask {
 public:
  const LabelledImages& training_photographs() const { return train_; }
  std::array<int64_t, 2> training_image_size() const override { return crop_; }
  int64_t training_samples() const override { return train_.count(); }
  int64_t test_samples() const override { return test_.count(); }
  std::vector<OneSize> test_sizes() const override;
  bool may_have_void() const override { return true; }
  const Json& loss() const override { return loss_; }

  Examples training(const std::vector<Draw>& draws) const override;
  Examples test(int64_t begin, int64_t count) const override;

  // brightness: the mean of the photograph's bytes; class: the one that most pixels show, void apart; any
  // other key is the name of the groups: the place of the photograph's group among the groups' names in
  // order.
  std::vector<double> sort_values(const std::string& key) const override;
  // Throws Error (refused) for a group without training images.
  std::vector<double> test_sort_values(const std::string& key) const override;

  // Photographs of one source or group have one name.
  std::vector<std::string> sample_names() const override;
  // The moments that images are normalised with, and the weights of the classes, stay those of the whole
  // training set.
  std::unique_ptr<Task> validation(const std::vector<int64_t>& training_samples) const override;

 protected:
  PhotographTask(const PhotographSet& set, const PhotographOptions& options, const Context& context);

 private:
  PhotographTask(const PhotographTask& whole, LabelledImages evaluated);
  void order_test();

  // Of a test sample: the place of its photograph in test_, its height and width, and these once padded.
  int64_t place_of(int64_t sample) const { return test_order_.at(static_cast<size_t>(sample)); }
  std::array<int64_t, 2> own_size(int64_t sample) const;
  std::array<int64_t, 2> padded_size(int64_t sample) const;

  uint64_t seed_;
  std::array<int64_t, 2> crop_;
  std::optional<std::array<int64_t, 2>> test_size_;
  int64_t test_multiple_;
  double scale_min_, scale_max_;
  std::shared_ptr<const Augmentation> augmentation_;
  bool groups_;
  Json loss_;
  LabelledImages train_, test_;
  std::vector<int64_t> test_order_;  // places in test_, those of one size together
  ChannelMoments moments_;           // images are normalised with them
};

// What can be asked of such a task before any run starts (task_facts.hpp).
template <std::derived_from<PhotographOptions> O>
DataCheck data_check(const O& options, const std::string& data_dir) {
  return check_of(options.photographs(data_dir));
}

// The task that `O`, options as PhotographOptions describes them, are all of.
template <class O>
class PhotographTaskOf : public PhotographTask {
 public:
  using Options = O;
  PhotographTaskOf(const Options& options, const Context& context)
      : PhotographTask(options.photographs(context.data_dir), options, context) {}
};

}  // namespace bnlab
