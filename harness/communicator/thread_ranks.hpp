// Ranks as threads of this process that meet over loopback: for small cases.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

#include "harness/communicator/world.hpp"

namespace bnlab {

// c10d's flight recorder is one per process and not made for ranks that are threads: turns it off. Also sets what
// ranks need that share a GPU, where they may. To be called while the process has one thread, before its first
// world and before it looks for GPUs.
void prepare_thread_ranks();

// One world for many bodies: to meet takes far longer than a small case.
class ThreadRanks {
 public:
  // On GPU k for rank k where `device` is CUDA, modulo their number where they are shared. A world of one
  // runs in the calling thread.
  ThreadRanks(int ranks, at::DeviceType device, Exchange exchange = Exchange::shared_memory);
  ~ThreadRanks();
  int ranks() const;

  // Runs `body` on every rank and waits for all. Throws what a rank has thrown; if several have, what is not
  // merely the loss of another rank. Unless all of them threw alike, the ranks meet anew for the next body.
  void run(const std::function<void(World&)>& body);

 private:
  class Crew;
  std::unique_ptr<Crew> crew_;
};

// The same with ranks that live for this body only.
void on_thread_ranks(int ranks, at::DeviceType device, const std::function<void(World&)>& body,
                     Exchange exchange = Exchange::shared_memory);

}  // namespace bnlab
