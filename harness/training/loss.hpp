// What training minimises. One file per loss in losses/, registered there.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

#include "harness/communicator/communicator.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

class Loss {
 public:
  static constexpr const char* kFamily = "loss";

  struct Context {
    LossMean mean = LossMean::batch;
    bool may_have_void = true;   // whether labels can hold Task::kVoid
    Communicator& communicator;  // outlives the loss
    at::TensorOptions weights;   // dtype and device of the weights that the labels get (LossWeights)
  };

  // From the outputs of a batch's forward pass to this rank's part of the loss, a scalar: the mean of the
  // ranks' parts is the loss that the spec asks for. Called once, by every rank, while the batch lives;
  // leaves it as it is.
  using OfOutputs = std::function<at::Tensor(const at::Tensor& outputs)>;

  explicit Loss(const Context& context) : context_(context) {}
  virtual ~Loss() = default;

  // Called before the forward pass by every rank, so that exchanges which need no outputs go on meanwhile.
  virtual OfOutputs begin(const Batch& batch) = 0;

 protected:
  Context context_;
};

// What the loss of each tower's valid labels is multiplied with, so that the objective is the mean that the
// spec asks for once data-parallel training has averaged the gradients over the ranks:
//   loss_mean batch: ranks / (valid labels of the global batch)
//   loss_mean tower: ranks / (valid labels of the tower * towers that have any)
// Where labels can be void the counts are exchanged; the exchange starts with the object and is awaited in
// get(). Elsewhere the sizes say it all and there is none.
class LossWeights {
 public:
  // `labels`: those of the batch, or what a loss has left of them.
  LossWeights(const Batch& batch, const at::Tensor& labels, const Loss::Context& context);
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
