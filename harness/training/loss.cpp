#include "harness/training/loss.hpp"

#include <ATen/core/Reduction.h>
#include <torch/types.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "harness/support/upload.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {
namespace {

int64_t labels_per_sample(const Batch& batch) {
  int64_t labels = 1;
  for (int64_t d = 1; d < batch.labels.dim(); ++d) labels *= batch.labels.size(d);
  return labels;
}

// Labels of every local tower, [G] float64.
at::Tensor label_counts(const Batch& batch, at::Device device) {
  std::vector<double> counts;
  for (int64_t t = batch.towers.first(); t < batch.towers.first() + batch.towers.per_rank(); ++t)
    counts.push_back(static_cast<double>(batch.towers.samples(t) * labels_per_sample(batch)));
  const bool even = std::all_of(counts.begin(), counts.end(), [&](double n) { return n == counts.front(); });
  if (even) {
    return at::full({batch.towers.per_rank()}, counts.front(),
                    at::TensorOptions().dtype(at::kDouble).device(device));
  }
  if (batch.bytes == nullptr) return uploaded(counts, device);
  std::vector<std::function<double(int64_t)>> of_steps;  // the same in all
  for (const double count : counts) of_steps.emplace_back([count](int64_t) { return count; });
  return numbers_of_step(*batch.bytes, of_steps, at::kDouble, device);
}

// What labels have, [n, H, W] or [n], as [n, labels of a sample].
at::Tensor by_sample(const at::Tensor& of_labels) {
  return of_labels.unsqueeze(-1).flatten(1);
}

// 1 for a valid label, or the weight of its class; 0 for void.
at::Tensor weight_of_labels(const at::Tensor& labels, const at::Tensor& class_weights) {
  const at::Tensor valid = labels.ne(Task::kVoid);
  if (!class_weights.defined()) return valid;
  const at::Tensor place = labels.clamp_min(0).flatten();
  return class_weights.to(at::kDouble).index_select(0, place).view_as(labels) * valid;
}

// Valid labels of every local tower, or the sum of their weights, [G] float64.
at::Tensor valid_sums(const at::Tensor& labels, const std::vector<int64_t>& offsets,
                      const at::Tensor& class_weights) {
  const auto per_sample = by_sample(weight_of_labels(labels, class_weights)).sum(1);
  std::vector<at::Tensor> counts;
  for (size_t g = 0; g + 1 < offsets.size(); ++g)
    counts.push_back(per_sample.slice(0, offsets[g], offsets[g + 1]).sum());
  return at::stack(counts).to(at::kDouble);
}

int64_t towers_with_samples(const Towers& towers) {
  const auto& samples = towers.all_samples();
  return std::ranges::count_if(samples, [](int64_t n) { return n > 0; });
}

at::Tensor cross_entropy(const at::Tensor& outputs, const at::Tensor& labels,
                         at::Reduction::Reduction reduction, const CrossEntropyKind& kind) {
  const auto logits = outputs.scalar_type() == at::kDouble ? outputs : outputs.to(at::kFloat);
  std::optional<at::Tensor> class_weights;
  if (kind.class_weights.defined()) class_weights = kind.class_weights.to(logits.scalar_type());
  return at::cross_entropy_loss(logits, labels, class_weights, reduction, Task::kVoid, kind.label_smoothing);
}

}  // namespace

at::Tensor Loss::total(const OfOutputs& loss_of, const Outputs& outputs, const Batch& passed) {
  const at::Tensor loss = loss_of(outputs.logits, passed);
  return outputs.auxiliary.defined() ? loss + outputs.auxiliary_weight * loss_of(outputs.auxiliary, passed)
                                     : loss;
}

LossWeights::LossWeights(const Batch& batch, const at::Tensor& labels, const Loss::Context& context,
                         const at::Tensor& class_weights)
    : ranks_(context.communicator.size()), local_towers_(batch.towers.per_rank()), options_(context.weights) {
  const bool per_tower = context.mean == LossMean::tower;
  if (!context.may_have_void && !class_weights.defined()) {
    const int64_t total = per_tower ? towers_with_samples(batch.towers)
                                    : batch.towers.total_samples() * labels_per_sample(batch);
    total_ = at::full({}, static_cast<double>(total), options_.dtype(at::kDouble));
    valid_ = per_tower ? label_counts(batch, options_.device()) : at::Tensor();
    return;
  }
  const at::Tensor valid = valid_sums(labels, batch.towers.local_offsets(), class_weights);
  valid_ = per_tower ? valid : at::Tensor();
  total_ = per_tower ? (valid > 0).sum().to(at::kDouble) : valid.sum();
  pending_ = context.communicator.all_reduce_async(total_, Purpose::loss);
}

at::Tensor LossWeights::get() {
  if (pending_) {
    pending_->wait();
    pending_.reset();
  }
  const at::Tensor share = (static_cast<double>(ranks_) / total_).masked_fill(total_ == 0, 0);
  if (!valid_.defined()) return share.to(options_.dtype()).expand({local_towers_});
  return (share / valid_).masked_fill(valid_ == 0, 0).to(options_.dtype());
}

at::Tensor cross_entropy_of_labels(const at::Tensor& outputs, const at::Tensor& labels,
                                   const CrossEntropyKind& kind) {
  return cross_entropy(outputs, labels, at::Reduction::None, kind);
}

at::Tensor weighted_cross_entropy(const at::Tensor& outputs, const at::Tensor& labels,
                                  const std::vector<int64_t>& offsets, const at::Tensor& weights,
                                  const CrossEntropyKind& kind) {
  const auto has_valid = by_sample(labels.ne(Task::kVoid)).any(1);  // [n]
  // The weight of a slice without valid labels is usually 1 / 0. It is masked before the product: a
  // mask behind it would still multiply the gradient by infinity.
  if (weights.numel() == 1 || weights.stride(0) == 0) {
    const auto sum = cross_entropy(outputs, labels, at::Reduction::Sum, kind);
    return sum * weights[0].masked_fill(has_valid.any().logical_not(), 0);
  }
  std::vector<at::Tensor> pieces;
  for (size_t g = 0; g + 1 < offsets.size(); ++g)
    pieces.push_back(weights[static_cast<int64_t>(g)].expand({offsets[g + 1] - offsets[g]}));
  const auto sample_weights = at::cat(pieces).masked_fill(has_valid.logical_not(), 0);
  return (by_sample(cross_entropy_of_labels(outputs, labels, kind)).sum(1) * sample_weights).sum();
}

}  // namespace bnlab
