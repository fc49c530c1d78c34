// Ranks as threads of this process that meet over loopback: for worlds that live as long as one small case.
#pragma once

#include <torch/types.h>

#include <functional>

#include "harness/communicator/world.hpp"

namespace bnlab {

// c10d's flight recorder is one per process and not made for ranks that are threads: turns it off. To be
// called while the process has one thread, before its first world.
void prepare_thread_ranks();

// Runs `body` on every rank of a new world, on GPU k for rank k where `device` is CUDA, and waits for all. A
// world of one runs in the calling thread. Throws what a rank has thrown; if several have, what is not merely
// the loss of another rank.
void on_thread_ranks(int ranks, at::DeviceType device, const std::function<void(World&)>& body);

}  // namespace bnlab
