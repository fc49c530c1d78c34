// A loss of the registry, outputs of 3 classes and labels for it.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/tasks/task.hpp"
#include "harness/training/loss.hpp"

namespace bnlab {

inline at::Tensor random_outputs(int64_t n) {
  at::manual_seed(5);
  return at::randn({n, 3, 4, 6}, at::kDouble);
}

inline at::Tensor random_labels(int64_t n) {  // -1 (void), 0, 1, 2
  at::manual_seed(6);
  return at::randint(-1, 3, {n, 4, 6}, at::kLong);
}

// The loss on one rank.
class LossOf {
 public:
  explicit LossOf(const Json& options, LossMean mean = LossMean::batch)
      : world_(join_world({}, at::kCPU)),
        loss_(Registered<Loss>::create(options, {.mean = mean,
                                                 .may_have_void = true,
                                                 .classes = 3,
                                                 .communicator = world_->gradients(),
                                                 .weights = at::TensorOptions(at::kDouble)})) {}

  at::Tensor operator()(const at::Tensor& outputs, const at::Tensor& labels,
                        const std::vector<int64_t>& samples_per_tower) {
    Batch batch;
    batch.labels = labels;
    batch.towers = Towers(samples_per_tower, 1, 0);
    return loss_->begin(batch)(outputs, batch);
  }

  // The labels that count, which are those with a gradient; the others are void.
  at::Tensor chosen(const at::Tensor& outputs, const at::Tensor& labels,
                    const std::vector<int64_t>& samples_per_tower) {
    const at::Tensor own = outputs.detach().clone().requires_grad_();
    (*this)(own, labels, samples_per_tower).backward();
    return labels.masked_fill(own.grad().ne(0).any(1).logical_not(), Task::kVoid);
  }

 private:
  std::unique_ptr<World> world_;
  std::unique_ptr<Loss> loss_;
};

}  // namespace bnlab
