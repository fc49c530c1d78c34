// Weights out of a run and into one.
#pragma once

#include <cstdint>
#include <string>

#include "harness/experiment/spec.hpp"
#include "harness/network.hpp"

namespace bnlab {

class Evaluator;

// Rank 0 (which `writes`) leaves parameters and saved pairs in run_dir/weights.safetensors, and the shadow
// pairs that the run carries in run_dir/populations.safetensors, named "tower:3/SITE.running_mean": the
// numbers that an evaluation after `steps_done` steps uses. Called by every rank. Returns the bytes of the
// weights, 0 elsewhere.
int64_t save_weights(const Network& network, Evaluator& evaluator, int64_t steps_done,
                     const std::string& run_dir, bool writes);

// Copies the tensors of a weights file into the network: all, or those of one part (Network::part_of). The
// file may come from another program: PyTorch's counters `num_batches_tracked` are left, a narrower
// floating-point type is widened, and for the part `backbone` the names may begin with "backbone.",
// "encoder." or neither, as in a network for classification. Returns what was used and what was left, as a
// note for the record. Throws Error: data for a file that cannot be used, refused where names, shapes or
// dtypes do not fit.
std::string load_weights(const InitFrom& from, Network& network);

}  // namespace bnlab
