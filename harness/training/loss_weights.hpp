// What the loss of each tower's valid labels is multiplied with, so that the objective is the mean that the
// spec asks for once data-parallel training has averaged the gradients over the ranks:
//   loss_mean batch: ranks / (valid labels of the global batch)
//   loss_mean tower: ranks / (valid labels of the tower * towers that have any)
// Where labels can be void, or the task selects some, the counts are exchanged; the exchange starts with the
// object (before the forward pass, where it can) and is awaited in get(). Else sizes say it all and there is
// none.
#pragma once

#include <memory>

#include "harness/communicator/communicator.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/strategy.hpp"
#include "harness/tasks/task.hpp"

namespace bnlab {

class LossWeights {
 public:
  LossWeights(const Task& task, const Batch& batch, LossMean mean, Communicator& communicator,
              at::TensorOptions options);
  at::Tensor get();  // [local towers]

 private:
  int64_t ranks_;
  int64_t local_towers_;
  at::TensorOptions options_;
  at::Tensor valid_;                  // [local towers] float64; undefined for mean "batch"
  at::Tensor total_;                  // [] float64: global valid labels, or towers that have any
  std::unique_ptr<Pending> pending_;  // the exchange of total_
};

}  // namespace bnlab
