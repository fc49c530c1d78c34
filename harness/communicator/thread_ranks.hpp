// Ranks as threads of this process, joined over loopback: for small cases.
#pragma once

#include <torch/types.h>

#include <functional>
#include <memory>

#include "harness/communicator/world.hpp"

namespace bnlab {

// Turns off c10d's flight recorder, which is one per process and not made for ranks that are threads. Where
// ranks may share a GPU it also sets what they need for that. To be called while the process has one thread,
// before its first world and before it looks for GPUs.
void prepare_thread_ranks();

// One world for many bodies, because joining takes far longer than a small case.
class ThreadRanks {
 public:
  // Where `device` is CUDA, rank k works on GPU k, modulo the number of GPUs where ranks share them. A world
  // of one runs in the calling thread.
  ThreadRanks(int ranks, at::DeviceType device, Exchange exchange = Exchange::shared_memory);
  ~ThreadRanks();
  int ranks() const;

  // Runs `body` on every rank and waits for all. Throws what a rank has thrown; if several have, an exception
  // that says more than the loss of another rank. Unless all of them threw alike, the ranks join anew for the
  // next body.
  void run(const std::function<void(World&)>& body);

 private:
  class Threads;
  std::unique_ptr<Threads> threads_;
};

// The same with ranks that live for this body only.
void on_thread_ranks(int ranks, at::DeviceType device, const std::function<void(World&)>& body,
                     Exchange exchange = Exchange::shared_memory);

}  // namespace bnlab
