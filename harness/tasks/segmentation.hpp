// What all segmentation tasks share: softmax cross-entropy without the void labels, over all pixels or
// the hardest of them (OHEM), and mean intersection over union (IoU) from one confusion matrix over the
// whole split.
// IoU of a class = true positives / (labelled + predicted - true positives); its mean is over the
// classes that the split's labels show, so a class absent from the split counts neither way.
#pragma once

#include <optional>
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
  std::vector<int64_t> numbers;    // of the names given
};
Numbered number_names(const std::vector<std::string>& names);

// The options of the loss "ohem".
struct HardExamples {
  double threshold = 0.7;
  int64_t min_kept = 256;  // pixels per image

  void describe(OptionVisitor& option);
};

// The option that every segmentation task takes, after its own.
struct SegmentationOptions {
  Json loss = "cross_entropy";

  void describe(OptionVisitor& option);
};

class SegmentationTask : public Task {
 public:
  int64_t classes() const override { return classes_; }
  std::string headline() const override { return "mean_iou"; }

  bool selects_labels() const override { return hard_examples_.has_value(); }
  // Under "ohem", the valid pixels of a slice whose true class has at most a probability p:
  //   p = max(threshold, the k-th smallest probability in the slice), k = min_kept * images of the slice
  at::Tensor select_labels(const at::Tensor& outputs, const at::Tensor& labels,
                           const std::vector<int64_t>& offsets) const override;

  at::Tensor valid_counts(const at::Tensor& labels, const std::vector<int64_t>& offsets) const override;
  // In float32, or float64 for float64 outputs. One reduction serves all slices when there is one
  // slice or `weights` is an expanded scalar (stride 0), which is known without reading the device.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels, const std::vector<int64_t>& offsets,
                  const at::Tensor& weights) const override;

  // Confusion counts int64 [groups, labelled class, predicted class].
  at::Tensor measure(const at::Tensor& outputs, const at::Tensor& labels, int64_t begin) const override;
  // {"mean_iou", "pixel_accuracy", "class_accuracy", "class_iou": [...]} and, where there are several
  // groups, "groups": {NAME: {"mean_iou", "pixel_accuracy"}}.
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
  std::optional<HardExamples> hard_examples_;
  std::vector<std::string> groups_ = {"all"};  // sorted
  at::Tensor group_of_sample_;                 // int64 [test samples]; undefined: one group
};

}  // namespace bnlab
