// A rank's place in the world and its process groups: one for statistics, one for gradients, so that a
// small exchange never queues behind a gradient bucket, and on GPUs a third between the hosts,
// made where it is first used.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/rendezvous.hpp"

namespace bnlab {

class World {
 public:
  virtual ~World() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual at::Device device() const = 0;
  virtual Communicator& statistics() = 0;  // for the strategy, in forward and backward
  virtual Communicator& gradients() = 0;   // also for loss counts, metrics and control
  virtual Communicator& host() = 0;        // between the hosts, for CPU tensors; on the CPU statistics()
  virtual Ledger& ledger() = 0;
  // What averages the gradients of these parameters (same order on all ranks, all needing gradients): c10d's Reducer,
  // bucket by bucket while backward goes on; where ranks share memory one exchange after backward, which is faster
  // than sockets that take cores from backward. `after_backward`: that one exchange everywhere, for a backward pass that
  // may be a replay, which no hook of the Reducer notices.
  virtual std::unique_ptr<GradientSync> gradient_sync(const std::vector<at::Tensor>& parameters,
                                                      bool after_backward) = 0;
  // Waits for the others; another run can then begin in this world. Not called after an error.
  virtual void rest() = 0;
  // Leaves in order: waits for the others, then shuts the groups down. Not called after an error.
  virtual void leave() = 0;
};

// Meets the other ranks. On a GPU the calling thread, to which the world belongs, then works on a stream of its own
// for the world's whole life. Throws Error (communication) if they do not come within the timeout and
// Error (environment) where the device or backend is lacking.
std::unique_ptr<World> join_world(const Rendezvous& rendezvous, at::DeviceType device);

// "2.28.9": of the NCCL that is loaded, which need not be the one that LibTorch was built with. Empty without NCCL.
std::string nccl_version();

// Whether this exception, which LibTorch let out of a backward pass (c10d's Reducer), says that another rank
// has gone or is stuck.
bool is_lost_contact(const std::exception& error);

}  // namespace bnlab
