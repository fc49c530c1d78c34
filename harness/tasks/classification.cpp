#include "harness/tasks/classification.hpp"

#include "harness/components/registry.hpp"

namespace bnlab {
namespace {

Json share(double part, double whole) {
  return whole > 0 ? Json(part / whole) : Json(nullptr);
}

}  // namespace

void ClassificationOptions::describe(OptionVisitor& option) {
  option.component("loss", loss, "loss", "what training minimises");
}

ClassificationTask::ClassificationTask(int64_t classes, const ClassificationOptions& options)
    : classes_(classes), loss_(options.loss) {}

at::Tensor ClassificationTask::measure(const at::Tensor& outputs, const at::Tensor& labels, int64_t) const {
  const at::Tensor cell = labels * classes_ + outputs.argmax(1);
  return at::bincount(cell, {}, classes_ * classes_).view({classes_, classes_});
}

Json ClassificationTask::metrics(const at::Tensor& measured) const {
  const at::Tensor counts = measured.cpu().to(at::kDouble);
  const at::Tensor labelled = counts.sum(1), hits = counts.diagonal();
  const at::Tensor present = labelled > 0;
  const double accuracies = (hits / labelled).masked_select(present).sum().item<double>();
  return {{"top1", share(hits.sum().item<double>(), labelled.sum().item<double>())},
          {"class_accuracy", share(accuracies, present.sum().item<double>())}};
}

Json ClassificationTask::share_alike(const at::Tensor& measured,
                                     const std::function<int64_t(int64_t)>& answer) {
  const at::Tensor counts = measured.cpu().contiguous();
  double alike = 0, all = 0;
  for (int64_t labelled = 0; labelled < counts.size(0); ++labelled) {
    for (int64_t predicted = 0; predicted < counts.size(1); ++predicted) {
      const auto count = static_cast<double>(counts[labelled][predicted].item<int64_t>());
      alike += answer(labelled) == answer(predicted) ? count : 0;
      all += count;
    }
  }
  return share(alike, all);
}

}  // namespace bnlab
