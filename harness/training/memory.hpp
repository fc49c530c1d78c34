// Peak memory of a rank: bytes of tensors and library workspaces (an accounting allocator on the CPU, the
// caching allocator's peak on CUDA), and the peak resident set of the process.
#pragma once

#include <torch/types.h>

#include <cstdint>

namespace bnlab {

// Puts the accounting allocator under every CPU tensor of the process. Call before the first tensor.
void account_cpu_memory();

void reset_peak_memory(at::Device device);
int64_t peak_memory_bytes(at::Device device);  // since the last reset
int64_t peak_rss_bytes();                      // over the life of the process

}  // namespace bnlab
