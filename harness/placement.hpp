// The words for where the ranks of a run compute and how they exchange. Specs, worlds and records share them.
#pragma once

#include "harness/components/options.hpp"

namespace bnlab {

BNLAB_CHOICE(Device, cpu, cuda)

// Ranks on CPUs exchange through memory that they share, where one host has all of them, or through sockets
// (Gloo). Ranks on GPUs exchange through NCCL, or over peers: statistics through memory of the GPUs, which
// the ranks of one host open to each other, and gradients too where ranks share a GPU.
BNLAB_CHOICE(Exchange, shared_memory, sockets, peers)

}  // namespace bnlab
