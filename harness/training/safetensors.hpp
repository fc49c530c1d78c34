// Weights in the safetensors format: 8 bytes little-endian length of a JSON header {"name": {"dtype",
// "shape", "data_offsets"}}, then the raw row-major data. Readable from Python without executing anything.
#pragma once

#include <string>
#include <vector>

#include "harness/training/optimizer.hpp"

namespace bnlab {

// Writes all tensors (moved to the CPU, contiguous) to a temporary file beside `file`, then renames it.
// Returns the size in bytes. Throws Error (environment) if the disk refuses.
int64_t write_safetensors(const std::string& file, const std::vector<NamedTensor>& tensors);

}  // namespace bnlab
