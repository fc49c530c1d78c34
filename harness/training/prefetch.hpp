// Training batches that a thread makes ahead of the steps that take them.
#pragma once

#include <c10/core/Event.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "harness/strategy.hpp"

namespace bnlab {

class Prefetch {
 public:
  static constexpr size_t kAhead = 2;  // batches at most that nobody has taken yet

  // make(step) is called in the thread, for 0, 1, ... up to `steps`, with a stream of its own on `device` to which it
  // may leave copies under way.
  Prefetch(std::function<Batch(int64_t step)> make, int64_t steps, at::Device device);
  ~Prefetch();  // waits for the batch that is being made, if any

  // The batch of step 0, 1, ... in turn; work on the current stream finds it complete. Throws what `make` has thrown
  // for this step, from then on every time.
  Batch next();

 private:
  struct Made {
    Batch batch;
    std::optional<c10::Event> complete;  // on a device
    std::exception_ptr failure;
  };

  void work();
  Made made(int64_t step) const;

  const std::function<Batch(int64_t)> make_;
  const int64_t steps_;
  const at::Device device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Made> ready_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace bnlab
