// Weights into a network.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/network.hpp"
#include "harness/training/safetensors.hpp"

namespace bnlab {

// Parameters, then buffers.
std::vector<NamedTensor> tensors_of(const Network& network);

// Copies the tensors of a weights file into the network: all, or those of one part (Network::part_of). The
// file may come from another program: PyTorch's counters `num_batches_tracked` are left, a narrower
// floating-point type is widened, and for the part `backbone` the names may begin with "backbone.",
// "encoder." or neither, as in a network for classification. Returns what was used and what was left, as a
// note for the record. Throws Error: data for a file that cannot be used, refused where names, shapes or
// dtypes do not fit.
std::string load_weights(const InitFrom& from, Network& network);

}  // namespace bnlab
