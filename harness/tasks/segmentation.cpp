#include "harness/tasks/segmentation.hpp"

#include <algorithm>

#include "harness/components/registry.hpp"

namespace bnlab {
namespace {

Json ratio(double part, double whole) {
  return whole > 0 ? Json(part / whole) : Json(nullptr);
}

// Metrics of one confusion matrix: int64 [classes, classes], rows are labels.
Json score(const at::Tensor& confusion) {
  const auto counts = confusion.to(at::kDouble).contiguous();
  const auto labelled = counts.sum(1), predicted = counts.sum(0), hit = counts.diagonal();
  double iou_sum = 0, dice_sum = 0, accuracy_sum = 0, present = 0;
  Json class_iou = Json::array();
  for (int64_t c = 0; c < counts.size(0); ++c) {
    const double in_labels = labelled[c].item<double>(), hits = hit[c].item<double>();
    if (in_labels == 0) {
      class_iou.push_back(nullptr);
      continue;
    }
    const double iou = hits / (in_labels + predicted[c].item<double>() - hits);
    class_iou.push_back(iou);
    iou_sum += iou;
    dice_sum += 2 * iou / (1 + iou);
    accuracy_sum += hits / in_labels;
    present += 1;
  }
  return {{"mean_iou", ratio(iou_sum, present)},
          {"mean_dice", ratio(dice_sum, present)},
          {"pixel_accuracy", ratio(hit.sum().item<double>(), counts.sum().item<double>())},
          {"class_accuracy", ratio(accuracy_sum, present)},
          {"class_iou", class_iou}};
}

}  // namespace

Examples blank_examples(int64_t count, int64_t height, int64_t width) {
  return {at::empty({count, 3, height, width}, at::kFloat), at::empty({count, height, width}, at::kLong)};
}

Numbered number_names(const std::vector<std::string>& names) {
  Numbered all{names, {}};
  std::ranges::sort(all.names);
  all.names.erase(std::unique(all.names.begin(), all.names.end()), all.names.end());
  for (const std::string& name : names)
    all.numbers.push_back(std::lower_bound(all.names.begin(), all.names.end(), name) - all.names.begin());
  return all;
}

void SegmentationOptions::describe(OptionVisitor& option) {
  option.component("loss", loss, "loss", "what training minimises, and which pixels count in it");
}

SegmentationTask::SegmentationTask(int64_t classes, const SegmentationOptions& options)
    : classes_(classes), loss_(options.loss) {}

at::Tensor SegmentationTask::measure(const at::Tensor& outputs, const at::Tensor& labels,
                                     int64_t begin) const {
  const auto groups = static_cast<int64_t>(groups_.size());
  const int64_t cells = groups * classes_ * classes_;
  const at::Tensor predicted = std::get<1>(outputs.max(1));  // faster than argmax over a strided axis
  at::Tensor cell = labels * classes_ + predicted;
  if (group_of_sample_.defined()) {
    const auto group = group_of_sample_.narrow(0, begin, labels.size(0)).to(labels.device());
    cell += (group * (classes_ * classes_)).view({-1, 1, 1});
  }
  cell.masked_fill_(labels.eq(kVoid), cells);  // void is counted in one more cell, which is dropped
  return at::bincount(cell.flatten(), {}, cells + 1).narrow(0, 0, cells).view({groups, classes_, classes_});
}

Json SegmentationTask::metrics(const at::Tensor& measured) const {
  const auto confusion = measured.cpu();
  Json all = score(confusion.sum(0));
  for (size_t g = 0; groups_.size() > 1 && g < groups_.size(); ++g) {
    const Json group = score(confusion[static_cast<int64_t>(g)]);
    all["groups"][groups_[g]] = {{"mean_iou", group["mean_iou"]},
                                 {"pixel_accuracy", group["pixel_accuracy"]}};
  }
  return all;
}

void SegmentationTask::set_test_groups(const std::vector<std::string>& group_of_sample) {
  const Numbered numbered = number_names(group_of_sample);
  groups_ = numbered.names;
  group_of_sample_ = at::tensor(numbered.numbers, at::kLong);
}

std::vector<double> SegmentationTask::most_frequent(const at::Tensor& labels, int64_t first) const {
  std::vector<at::Tensor> pixels;  // by class: [N]
  for (int64_t c = first; c < classes_; ++c) pixels.push_back(labels.eq(c).flatten(1).sum(1));
  const auto [most, place] = at::stack(pixels).max(0);  // the place of the first maximum
  const at::Tensor classes = (place + first).masked_fill(most == 0, first - 1).to(at::kDouble);
  return {classes.const_data_ptr<double>(), classes.const_data_ptr<double>() + classes.numel()};
}

}  // namespace bnlab
