// cross_entropy: softmax cross-entropy over all labels that are not void.
#include "harness/training/losses/cross_entropy.hpp"

#include <ATen/core/Reduction.h>

#include <memory>

#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/loss.hpp"

namespace bnlab {
namespace {

at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& labels,
                         at::Reduction::Reduction reduction) {
  const auto logits = outputs.scalar_type() == at::kDouble ? outputs : outputs.to(at::kFloat);
  return at::cross_entropy_loss(logits, labels, {}, reduction, Task::kVoid);
}

class CrossEntropy : public Loss {
 public:
  struct Options {
    void describe(OptionVisitor&) {}
  };

  CrossEntropy(const Options&, const Context& context) : Loss(context) {}

  OfOutputs begin(const Batch& batch) override {
    const auto weights = std::make_shared<LossWeights>(batch, batch.labels, context_);
    return
        [labels = batch.labels, offsets = batch.towers.local_offsets(), weights](const at::Tensor& outputs) {
          return weighted_cross_entropy(outputs, labels, offsets, weights->get());
        };
  }
};

const Registered<Loss> entry{
    {.name = "cross_entropy", .summary = "softmax cross-entropy over all pixels that are not void"},
    make<Loss, CrossEntropy>};

}  // namespace

at::Tensor cross_entropy_of_labels(const at::Tensor& outputs, const at::Tensor& labels) {
  return cross_entropy(outputs, labels, at::Reduction::None);
}

at::Tensor weighted_cross_entropy(const at::Tensor& outputs, const at::Tensor& labels,
                                  const std::vector<int64_t>& offsets, const at::Tensor& weights) {
  const auto has_valid = labels.ne(Task::kVoid).flatten(1).any(1);  // [n]
  // The weight of a slice without valid labels is usually 1 / 0. It is masked before the product: a
  // mask behind it would still multiply the gradient by infinity.
  if (weights.numel() == 1 || weights.stride(0) == 0) {
    const auto sum = cross_entropy(outputs, labels, at::Reduction::Sum);
    return sum * weights[0].masked_fill(has_valid.any().logical_not(), 0);
  }
  std::vector<at::Tensor> pieces;
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    pieces.push_back(weights[static_cast<int64_t>(g)].expand({offsets[g + 1] - offsets[g]}));
  }
  const auto sample_weights = at::cat(pieces).masked_fill(has_valid.logical_not(), 0);
  return (cross_entropy_of_labels(outputs, labels).flatten(1).sum(1) * sample_weights).sum();
}

}  // namespace bnlab
