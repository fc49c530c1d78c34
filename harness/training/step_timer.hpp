// Times of training steps and of their parts. On the CPU a monotonic clock; on a GPU events on the stream,
// read after the run, so that no step waits for the device.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <array>
#include <chrono>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

class Communicator;

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
