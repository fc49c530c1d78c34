// A rank's place in the world and its process groups: one for statistics and one for gradients, so that a
// small exchange never queues behind a gradient bucket. On GPUs there is a third one between the hosts, which
// its first collective makes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <exception>
#include <memory>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/rendezvous.hpp"

namespace c10d {
class ProcessGroup;
}

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
  // Where the tensors of host() lie: in a world over a process group that takes none of the CPU, on its GPU.
  virtual at::Device host_device() const { return at::kCPU; }
  virtual Ledger& ledger() = 0;
  // What averages the gradients of these parameters, which have the same order on all ranks and all need
  // gradients. Mostly this is c10d's Reducer, bucket by bucket while backward goes on. Where ranks share
  // memory it is one exchange after backward, which is faster than sockets that take cores from backward.
  // With `after_backward` it is that one exchange everywhere: the hooks of the Reducer do not notice a
  // backward pass that is a replay.
  virtual std::unique_ptr<GradientSync> gradient_sync(const std::vector<at::Tensor>& parameters,
                                                      bool after_backward) = 0;
  // Whether a recorded backward pass may hold exchanges of gradients() beside those of statistics()
  // (make_bucket_sync). The same on all ranks.
  virtual bool records_gradients() const { return false; }
  // Waits for the others; another run can then begin in this world. Not called after an error.
  virtual void barrier() = 0;
  // Waits for the others, then shuts the process groups down. Not called after an error.
  virtual void shutdown() = 0;
};

// Joins the other ranks. The world belongs to the calling thread, which on a GPU works on a stream of its own
// for the world's whole life. Throws Error (communication) if the others do not come within the timeout and
// Error (environment) where the device or backend is lacking.
std::unique_ptr<World> join_world(const Rendezvous& rendezvous, at::DeviceType device);

// The ranks of a process group that the program has made and shuts down itself. Statistics, gradients and all
// else share it, in the order in which they are exchanged; tensors go to its backend for their device.
std::unique_ptr<World> world_over(const c10::intrusive_ptr<c10d::ProcessGroup>& processes);

// This process alone, on whatever device its tensors are. It opens nothing.
std::unique_ptr<World> world_of_one();

// Whether this exception, which LibTorch let out of a backward pass (c10d's Reducer), says that another rank
// has gone or is stuck.
bool is_lost_contact(const std::exception& error);

}  // namespace bnlab
