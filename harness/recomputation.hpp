// Blocks of a network that keep their inputs alone: what autograd would save of a block is dropped after its
// forward pass and computed again when the backward pass first asks for it (Chen et al. 2016, "Training deep
// nets with sublinear memory cost").
//
// The second forward pass gives the tensors of the first to the last bit, and the graph of the backward pass
// is the one of the first, so gradients are equal, too. A layer whose result depends on more than its input,
// as on moments that towers have exchanged, finds what it had in the first pass in Kept: it exchanges nothing
// and remembers nothing. With Recompute::naive it does both once more, as where nobody has thought of it.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "harness/pass.hpp"

namespace bnlab {

// What the layers of a block have kept in its first forward pass for the second.
class Kept {
 public:
  explicit Kept(Recompute recompute) : naive_(recompute == Recompute::naive) {}

  // Whether layers must repeat their first pass instead of making a new one.
  bool repeats() const { return again_ && !naive_; }

  // In the first pass `value`; in the second what the first has given at this place. All layers of the block
  // ask in the same order in both.
  template <class T>
  c10::intrusive_ptr<T> same(const c10::intrusive_ptr<T>& value) {
    if (!again_) values_.push_back(value);
    return c10::static_intrusive_pointer_cast<T>(values_.at(next_++));
  }

  void begin(bool again) {
    again_ = again;
    next_ = 0;
  }

 private:
  bool naive_;
  bool again_ = false;
  size_t next_ = 0;
  std::vector<c10::intrusive_ptr<c10::intrusive_ptr_target>> values_;
};

// Computes a block's output from its inputs and the pass that it is given; called once more in the backward
// pass, so it holds by value what it needs, but for modules, which live as long as their network.
using BlockForward = std::function<at::Tensor(const std::vector<at::Tensor>& inputs, const Pass& pass)>;

// The output of a block, whose activations are recomputed where the pass asks for it and trains. All tensors
// that need gradients, but for parameters, are among the inputs, some of which may be undefined. A block
// inside another one is a part of it.
at::Tensor recomputed(const std::vector<at::Tensor>& inputs, const Pass& pass, const BlockForward& forward);

}  // namespace bnlab
