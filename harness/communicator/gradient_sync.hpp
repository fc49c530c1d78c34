// How the gradients of all ranks become their mean: the interface that the training loop calls, and the
// simplest way, which is one exchange once backward has made all of them. c10d's Reducer is the other
// (make_reducer of world_parts.hpp). gradient_sync.cpp holds both.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace bnlab {

// The training loop calls the five members around its own work.
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  virtual void before_forward() = 0;
  virtual void before_backward() = 0;
  // This rank's own work before the exchange; it is recorded with a backward pass.
  virtual void after_backward() = 0;
  virtual void exchange() = 0;                      // gradients are the mean over the ranks when it returns
  virtual void after_step(int64_t steps_done) = 0;  // drops the gradients; the step just made counts
};

// What the ranks do with one flat tensor, in place; it is then the same on all of them.
using FlatExchange = std::function<void(at::Tensor& flat)>;

// Packs the tensors of each dtype into one flat tensor, exchanges it and unpacks it where it came from.
void exchange_flat(const std::vector<at::Tensor>& tensors, const FlatExchange& exchange);

// Gradients are laid into one flat tensor (of each dtype), of which they are views from then on, multiplied
// with `factor` there, and exchanged: `exchange` makes the mean over the ranks of it. All parameters need
// gradients. `replayed`: the same flat tensor serves all steps, so that backward passes can be recorded.
std::unique_ptr<GradientSync> make_flat_sync(std::vector<at::Tensor> parameters, FlatExchange exchange,
                                             double factor = 1, bool replayed = false);

// What after_step() does where gradients are no views of buckets.
void drop_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace bnlab
