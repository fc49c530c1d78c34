#include "harness/training/loss_weights.hpp"

#include <torch/types.h>

#include <vector>

namespace bnlab {
namespace {

int64_t labels_per_sample(const Batch& batch) {
  int64_t labels = batch.rows_per_sample;
  for (int64_t d = 1; d < batch.labels.dim(); ++d) {
    labels *= batch.labels.size(d);
  }
  return labels;
}

// Labels of every local tower, [G] float64.
at::Tensor label_counts(const Batch& batch) {
  std::vector<double> counts;
  for (int64_t t = batch.towers.first(); t < batch.towers.first() + batch.towers.per_rank(); ++t) {
    counts.push_back(static_cast<double>(batch.towers.samples(t) * labels_per_sample(batch)));
  }
  return at::tensor(counts, at::kDouble);
}

int64_t full_towers(const Towers& towers) {
  int64_t full = 0;
  for (const int64_t n : towers.all_samples()) {
    full += n > 0 ? 1 : 0;
  }
  return full;
}

}  // namespace

LossWeights::LossWeights(const Task& task, const Batch& batch, LossMean mean, Communicator& communicator,
                         at::TensorOptions options)
    : ranks_(communicator.size()), local_towers_(batch.towers.per_rank()), options_(options) {
  if (!task.may_have_void() && !task.selects_labels()) {
    const int64_t total = mean == LossMean::batch ? batch.towers.total_samples() * labels_per_sample(batch)
                                                  : full_towers(batch.towers);
    total_ = at::full({}, static_cast<double>(total), options.dtype(at::kDouble));
    valid_ = mean == LossMean::tower ? label_counts(batch).to(options.device()) : at::Tensor();
    return;
  }
  const at::Tensor valid = task.valid_counts(batch.labels, batch.towers.local_offsets());
  valid_ = mean == LossMean::tower ? valid : at::Tensor();
  total_ = mean == LossMean::tower ? (valid > 0).sum().to(at::kDouble) : valid.sum();
  pending_ = communicator.all_reduce_async(total_, Purpose::loss);
}

at::Tensor LossWeights::get() {
  if (pending_) {
    pending_->wait();
  }
  const at::Tensor share = static_cast<double>(ranks_) / total_.clamp_min(1);
  if (!valid_.defined()) {
    return share.to(options_.dtype()).expand({local_towers_});
  }
  return (share / valid_).masked_fill(valid_ == 0, 0).to(options_.dtype());
}

}  // namespace bnlab
