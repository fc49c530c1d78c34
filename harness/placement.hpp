// The words for where the ranks of a run compute and how they exchange. Specs, worlds and records share them.
#pragma once

#include "harness/components/options.hpp"

namespace bnlab {

BNLAB_CHOICE(Device, cpu, cuda)

// Ranks on CPUs exchange through memory that they share, where one host has all of them, or through sockets
// (Gloo). Ranks on GPUs exchange through NCCL.
BNLAB_CHOICE(Exchange, shared_memory, sockets)

}  // namespace bnlab
