// What training has cost: the peak memory of every rank and the traffic per step. The times are StepTimer's.
#pragma once

#include <cstdint>

#include "harness/communicator/world.hpp"
#include "harness/json.hpp"
#include "harness/state.hpp"

namespace bnlab {

class Costs {
 public:
  explicit Costs(World& world) : world_(world) {}

  // What was spent before `step` does not count.
  void begin(int64_t step);
  // Around work that is not training, such as an evaluation: its memory does not count.
  void pause();
  void resume();

  // What was spent so far; called between pause() and resume(). Where the number of ranks has changed, they
  // begin anew.
  void describe(State& state, int64_t steps_done);

  // Of all ranks: {"peak_memory_bytes": [...], "peak_rss_bytes": [...]}, where the first counts training
  // (peak_memory.hpp) and the second the whole run (../resident_memory.hpp). Called by every rank.
  Json memory();
  // {"gradients": {"collectives_per_step", "bytes_per_step"}, ...} of this rank, over the steps that count.
  Json traffic(int64_t steps_done) const;

 private:
  World& world_;
  int64_t first_step_ = 0;   // the first one that counts
  int64_t peak_before_ = 0;  // bytes, of training before the last pause
};

}  // namespace bnlab
