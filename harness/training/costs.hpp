// What training has cost: the peak memory of every rank, the traffic per step, and the share of the time that
// went into it. All other times are StepTimer's.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "harness/communicator/world.hpp"
#include "harness/state.hpp"
#include "harness/support/json.hpp"

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
  // (peak_memory.hpp) and the second the whole run (../support/resident_memory.hpp). Called by every rank.
  Json memory();
  // {"gradients": {"collectives_per_step", "bytes_per_step"}, ...} of this rank, over the steps that count.
  Json traffic(int64_t steps_done) const;
  // Of the time of the steps that count, the share that this rank was in collectives of statistics and
  // shuffling, waits for other ranks included. Of a run that goes on from a checkpoint, since it did. Nothing
  // on a GPU, where the host does not wait for them, and on one rank.
  std::optional<double> exchange_share() const;

 private:
  double seconds() const;  // in the steps that count

  World& world_;
  int64_t first_step_ = 0;     // the first one that counts
  int64_t peak_before_ = 0;    // bytes, of training before the last pause
  double seconds_before_ = 0;  // training time before the last pause
  std::optional<std::chrono::steady_clock::time_point> since_ =
      std::chrono::steady_clock::now();  // none: a pause
};

}  // namespace bnlab
