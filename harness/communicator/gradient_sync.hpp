// How the gradients of all ranks become their mean: the interface that the training loop calls, and the
// simplest way, which is one exchange once backward has made all of them. The others exchange buckets while
// backward goes on: c10d's Reducer (make_reducer of world_parts.hpp), and buckets that a graph can hold.
// gradient_sync.cpp has all of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "harness/communicator/communicator.hpp"

namespace bnlab {

// The training loop calls the five members around its own work.
class GradientSync {
 public:
  virtual ~GradientSync() = default;
  virtual void before_forward() = 0;   // at a step's first pass; again where it could not be recorded
  virtual void before_backward() = 0;  // at a step's last pass
  virtual void after_backward() = 0;   // this rank's own work, or a wait; recorded with a backward pass
  virtual void exchange() = 0;         // gradients are the mean over the ranks when it returns
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

constexpr size_t kFirstBucketBytes = 1 << 20;  // small, so that the first exchange starts early
constexpr size_t kBucketBytes = 25 << 20;

// Gradients are laid into buckets as in the flat tensor above, the last parameters' first. Each is exchanged
// as soon as it is full, and the current stream waits for all behind the backward pass. A recorded pass holds
// its exchanges. All parameters need gradients, once in a pass. `gradients` outlives this.
//
// In a graph nothing orders these exchanges and those of statistics beside them: a rank may begin either
// first. So the waiting kernels of both must have room on a GPU together. That holds for one NCCL
// communicator beside the exchange over peers, which waits in 16 blocks at most (peers::kLanes). Two NCCL
// communicators can deadlock. So can ranks that share a GPU, where the waiting kernels of all of them need
// room twice. Those exchange after the backward pass.
std::unique_ptr<GradientSync> make_bucket_sync(const std::vector<at::Tensor>& parameters,
                                               Communicator& gradients,
                                               const std::vector<size_t>& bucket_bytes = {kFirstBucketBytes,
                                                                                          kBucketBytes});

// What after_step() does where gradients are no views of buckets.
void drop_gradients(const std::vector<at::Tensor>& parameters);

}  // namespace bnlab
