// What training minimises. One file per loss in losses/, registered there.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

class Loss {
 public:
  static constexpr const char* kFamily = "loss";

  struct Context {
    LossMean mean = LossMean::batch;
    bool may_have_void = true;  // whether labels can hold Task::kVoid
    int64_t classes = 0;
    Communicator& communicator;  // outlives the loss
    at::TensorOptions weights;   // dtype and device of the weights that the labels get (LossWeights)
  };

  // From the outputs of a forward pass to this rank's part of the loss, a scalar: the mean over the ranks of
  // the sums of their parts is the loss that the spec asks for. `passed`: the batch of the step, or a
  // micro-batch of it; each is passed once. Called by every rank, in the same order, while the batch lives,
  // once for each of the network's outputs; leaves the batch as it is.
  using OfOutputs = std::function<at::Tensor(const at::Tensor& outputs, const Batch& passed)>;

  explicit Loss(const Context& context) : context_(context) {}
  virtual ~Loss() = default;

  // The loss of all outputs: of the logits, and of the auxiliary ones with their weight.
  static at::Tensor total(const OfOutputs& loss_of, const Outputs& outputs, const Batch& passed);

  // Called before the first forward pass of a step by every rank, so that exchanges which need no outputs go
  // on meanwhile. `batch`: the whole of the step.
  virtual OfOutputs begin(const Batch& batch) = 0;

 protected:
  Context context_;
};

// What the cross-entropy of a label is, in the sense of PyTorch's function of that name.
struct CrossEntropyKind {
  at::Tensor class_weights;  // [classes]; undefined: 1 for every class
  double label_smoothing = 0;
};

// What the loss of each tower's valid labels is multiplied with, so that the objective is the mean that the
// spec asks for once data-parallel training has averaged the gradients over the ranks:
//   loss_mean batch: ranks / (valid labels of the global batch)
//   loss_mean tower: ranks / (valid labels of the tower * towers that have any)
// With class weights the labels' weights are summed in place of counting them, which makes the means
// weighted. Where labels can be void or have weights the sums are exchanged; the exchange starts with the
// object and is awaited in get(). Elsewhere the sizes say it all and there is none.
class LossWeights {
 public:
  // `labels`: those of the batch, or what a loss has left of them. `class_weights` as in CrossEntropyKind.
  LossWeights(const Batch& batch, const at::Tensor& labels, const Loss::Context& context,
              const at::Tensor& class_weights = {});
  at::Tensor get();  // [local towers]; the same whenever it is asked

 private:
  int64_t ranks_;
  int64_t local_towers_;
  at::TensorOptions options_;
  at::Tensor valid_;                  // [local towers] float64: valid labels; undefined for mean "batch"
  at::Tensor total_;                  // [] float64: global valid labels, or towers that have any
  std::unique_ptr<Pending> pending_;  // the exchange of total_
};

// The cross-entropy of each label (by default the negative logarithm of the probability of its class), 0
// where the label is Task::kVoid; in float32, or float64 for float64 outputs. outputs: [n, classes, H, W],
// labels and result: [n, H, W]; or [n, classes] and [n].
at::Tensor cross_entropy_of_labels(const at::Tensor& outputs, const at::Tensor& labels,
                                   const CrossEntropyKind& kind = {});

// sum over the slices g of weights[g] * (sum of the cross-entropy of the valid labels of the samples from
// offsets[g] to offsets[g + 1]); a scalar. A slice without valid labels adds 0 (not NaN) to the loss and to
// its gradient, whatever its weight. One reduction serves all slices where there is one or `weights` is an
// expanded scalar (stride 0), which is known without reading the device.
at::Tensor weighted_cross_entropy(const at::Tensor& outputs, const at::Tensor& labels,
                                  const std::vector<int64_t>& offsets, const at::Tensor& weights,
                                  const CrossEntropyKind& kind = {});

}  // namespace bnlab
