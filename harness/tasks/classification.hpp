// What all classification tasks share: one label per sample (an image or a clip), a loss that the spec
// chooses, and accuracies from one confusion matrix over the whole split. top1 is the share of samples whose
// most probable class is the labelled one; class_accuracy is the mean of that share over the classes that the
// split's labels show.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/components/options.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {

// The option that every classification task takes, after its own.
struct ClassificationOptions {
  Json loss = "cross_entropy";

  void describe(OptionVisitor& option);
};

class ClassificationTask : public Task {
 public:
  int64_t classes() const override { return classes_; }
  std::string headline() const override { return "top1"; }
  const Json& loss() const override { return loss_; }
  bool may_have_void() const override { return false; }

  // Confusion counts int64 [labelled class, predicted class].
  at::Tensor measure(const at::Tensor& outputs, const at::Tensor& labels, int64_t begin) const override;
  // {"top1", "class_accuracy"}.
  Json metrics(const at::Tensor& measured) const override;

 protected:
  ClassificationTask(int64_t classes, const ClassificationOptions& options);

  // The share of samples whose predicted and labelled class have the same answer to a question about a class;
  // null where there is no sample. measured: as metrics() gets it.
  static Json share_alike(const at::Tensor& measured, const std::function<int64_t(int64_t)>& answer);

 private:
  int64_t classes_;
  Json loss_;
};

}  // namespace bnlab
