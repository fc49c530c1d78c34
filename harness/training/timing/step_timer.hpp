// The times of the training steps and of their parts.
#pragma once

#include <c10/core/Event.h>
#include <torch/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "harness/communicator/communicator.hpp"
#include "harness/support/json.hpp"
#include "harness/support/quantile.hpp"

namespace bnlab {

// Times steps by a monotonic clock on the CPU. On a GPU it records events on the stream and reads them some
// steps later, so that no step waits for the device.
class StepTimer {
 public:
  enum Part { data, forward, backward, optimizer, kParts };
  static constexpr std::array<const char*, kParts> kPartNames{"data", "forward", "backward", "optimizer"};

  // The host can be so many steps ahead of the device before it waits here, because so many steps' events are
  // kept.
  static constexpr size_t kRing = 32;

  explicit StepTimer(at::Device device) : device_(device) {}

  void begin_step();
  // Each part begins where the one before has ended; a step may come back to a part.
  void end(Part part);
  void end_step();

  // Of the steps after the first `warmup`, over all ranks: {"images_per_s", "step_time_s": {median, p10, p90,
  // slowest_rank}, ...} on rank 0, null elsewhere. Called by every rank. `images`: of a global batch.
  Json throughput(int64_t warmup, int64_t images, Communicator& communicator);

 private:
  struct Mark {
    std::chrono::steady_clock::time_point time;
    std::optional<c10::Event> event;  // on a device
  };
  struct Marks {
    std::vector<Mark> marks;  // begin, ends of the parts, end; kept for the steps that follow
    std::vector<Part> parts;  // what each of them ends; kParts: the time in no part
    size_t used = 0;
  };
  struct Seconds {
    std::array<double, kParts + 1> parts;  // the last one holds what is in no part
    double whole;
  };

  void mark(Part ended);  // the present moment of the step under way
  void read_oldest();     // reads the oldest step in the ring
  double seconds(const Mark& from, const Mark& to) const;

  at::Device device_;
  std::array<Marks, kRing> ring_;
  size_t ended_ = 0;            // steps
  std::vector<Seconds> steps_;  // whose marks were read
};

}  // namespace bnlab
