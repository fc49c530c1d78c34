// What a run has cost beside time: the peak memory of every rank, and its traffic per step.
#pragma once

#include <cstdint>

#include "harness/communicator/world.hpp"
#include "harness/json.hpp"

namespace bnlab {

// Puts an accounting allocator under every CPU tensor of the process. Call before the first tensor.
void account_cpu_memory();

class Costs {
 public:
  explicit Costs(World& world) : world_(world) {}

  // What was spent before `step` no longer counts.
  void begin(int64_t step);

  // Of all ranks: {"peak_memory_bytes": [...], "peak_rss_bytes": [...]}, the bytes of tensors and library
  // workspaces (by the accounting allocator, on CUDA by the caching allocator) and the peak resident set over
  // the life of the process. Called by every rank.
  Json memory();
  // {"gradients": {"collectives_per_step", "bytes_per_step"}, ...} of this rank, over the steps that count.
  Json traffic(int64_t steps_done) const;

 private:
  World& world_;
  int64_t first_step_ = 0;  // that counts
};

}  // namespace bnlab
