// What a run has cost: the times of its steps and of their parts, the peak memory of every rank, the traffic per step.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/json.hpp"
#include "harness/state.hpp"

namespace bnlab {

// Puts an accounting allocator under every CPU tensor of the process. Call before the first tensor.
void account_cpu_memory();

class Costs {
 public:
  explicit Costs(World& world) : world_(world) {}

  // What was spent before `step` no longer counts.
  void begin(int64_t step);
  // Around an evaluation, whose memory does not count.
  void pause();
  void resume();

  // What was spent so far, as of a pause. Other ranks than those that spent it begin anew.
  void describe(State& state, int64_t steps_done);

  // Of all ranks: {"peak_memory_bytes": [...], "peak_rss_bytes": [...]}, the bytes of tensors and library
  // workspaces in training (by the accounting allocator, on CUDA by the caching allocator) and the peak resident
  // set over the life of the process. Called by every rank.
  Json memory();
  // {"gradients": {"collectives_per_step", "bytes_per_step"}, ...} of this rank, over the steps that count.
  Json traffic(int64_t steps_done) const;

 private:
  World& world_;
  int64_t first_step_ = 0;   // that counts
  int64_t peak_before_ = 0;  // bytes, in training before the last pause
};

// On the CPU a monotonic clock; on a GPU events on the stream, read some steps later, so that no step waits for the
// device.
class StepTimer {
 public:
  enum Part { data, forward, backward, optimizer, kParts };
  static constexpr std::array<const char*, kParts> kPartNames{"data", "forward", "backward", "optimizer"};

  // Steps whose events are kept: the host can be so many steps ahead of the device before it waits here.
  static constexpr size_t kRing = 32;

  explicit StepTimer(at::Device device) : device_(device) {}

  void begin_step();
  void end(Part part);  // each part begins where the one before has ended
  void end_step();

  // Steps after the first `warmup`: {"images_per_s", "step_time_s": {median, p10, p90, slowest_rank}, ...}
  // over all ranks, on rank 0; null elsewhere. Called by every rank. `images`: of a global batch.
  Json throughput(int64_t warmup, int64_t images, Communicator& communicator);

 private:
  struct Mark {
    std::chrono::steady_clock::time_point time;
    std::optional<c10::Event> event;  // on a device
  };
  using Marks = std::array<Mark, kParts + 2>;  // begin, ends of the parts, end
  struct Seconds {
    std::array<double, kParts + 1> parts;  // the last one holds what is in no part
    double whole;
  };

  void set(size_t mark);  // of the step under way: now
  void read_oldest();     // of the steps in the ring
  double seconds(const Mark& from, const Mark& to) const;

  at::Device device_;
  std::array<Marks, kRing> ring_;
  size_t ended_ = 0;            // steps
  std::vector<Seconds> steps_;  // those that were read
};

}  // namespace bnlab
