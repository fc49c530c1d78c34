// The peak memory of this process in tensors and library workspaces: on the CPU by an accounting allocator,
// on CUDA by the caching allocator. The resident set is harness/support/resident_memory.hpp's.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

namespace bnlab {

// Puts an accounting allocator under every CPU tensor of the process. Call before the first tensor.
void account_cpu_memory();

// Makes what is held now the peak.
void reset_peak_memory(c10::Device device);
int64_t peak_memory_bytes(c10::Device device);  // since then

}  // namespace bnlab
