// What all segmentation tasks share: a loss that the spec chooses, and mean intersection over union (IoU)
// from one confusion matrix over the whole split. IoU of a class = true positives / (labelled + predicted -
// true positives), its Dice coefficient 2 IoU / (1 + IoU). Means are over the classes that the split's labels
// show, so a class absent from the split counts neither way.
#pragma once

#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {

// Memory for `count` images of a size and their labels, to be written to.
Examples blank_examples(int64_t count, int64_t height, int64_t width);

// Names as numbers: each one's place among the distinct names in order.
struct Numbered {
  std::vector<std::string> names;  // distinct, sorted
  std::vector<int64_t> numbers;
};
Numbered number_names(const std::vector<std::string>& names);

// The option that every segmentation task takes, after its own.
struct SegmentationOptions {
  Json loss = "cross_entropy";

  void describe(OptionVisitor& option);
};

class SegmentationTask : public Task {
 public:
  int64_t classes() const override { return classes_; }
  std::string headline() const override { return "mean_iou"; }
  const Json& loss() const override { return loss_; }

  // Confusion counts int64 [groups, labelled class, predicted class].
  at::Tensor measure(const at::Tensor& outputs, const at::Tensor& labels, int64_t begin) const override;
  // {"mean_iou", "mean_dice", "pixel_accuracy", "class_accuracy", "class_iou": [...]} and, where there are
  // several groups, "groups": {NAME: {"mean_iou", "pixel_accuracy"}}.
  Json metrics(const at::Tensor& measured) const override;

 protected:
  SegmentationTask(int64_t classes, const SegmentationOptions& options);

  // Names the group of every test sample; the metrics are then also given group by group.
  void set_test_groups(const std::vector<std::string>& group_of_sample);

  // Of each image the class, counted from `first`, that most of its pixels show (the lowest of equals), or
  // first - 1 where it shows none. labels: [N, H, W], any integer type.
  std::vector<double> most_frequent(const at::Tensor& labels, int64_t first) const;

 private:
  int64_t classes_;
  Json loss_;
  std::vector<std::string> groups_ = {"all"};  // sorted
  at::Tensor group_of_sample_;                 // int64 [test samples]; undefined: one group
};

}  // namespace bnlab
