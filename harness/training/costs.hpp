// What a run has cost: the times of its steps and of their parts, the peak memory of every rank, the traffic per step.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

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
  // Around an evaluation, whose memory does not count.
  void pause();
  void resume();

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

// On the CPU a monotonic clock; on a GPU events on the stream, read after the run, so that no step waits for the
// device.
class StepTimer {
 public:
  enum Part { data, forward, backward, optimizer, kParts };
  static constexpr std::array<const char*, kParts> kPartNames{"data", "forward", "backward", "optimizer"};

  explicit StepTimer(at::Device device) : device_(device) {}

  void begin_step();
  void end(Part part);  // each part begins where the one before has ended
  void end_step();

  // Steps after the first `warmup`: {"images_per_s", "step_time_s": {median, p10, p90, slowest_rank}, ...}
  // over all ranks; called by every rank. `images`: of a global batch.
  Json throughput(int64_t warmup, int64_t images, Communicator& communicator) const;

 private:
  struct Mark {
    std::chrono::steady_clock::time_point time;
    std::shared_ptr<c10::Event> event;
  };
  using Marks = std::array<Mark, kParts + 2>;  // begin, ends of the parts, end

  Mark now() const;
  double seconds(const Mark& from, const Mark& to) const;

  at::Device device_;
  Marks current_;
  std::vector<Marks> steps_;
};

}  // namespace bnlab
