// Training batches that threads make ahead of the steps that take them.
#pragma once

#include <c10/core/Event.h>

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "harness/strategy.hpp"

namespace bnlab {

class Prefetch {
 public:
  static constexpr int64_t kAhead =
      2;  // batches at most that nobody has taken yet; each worker but the first adds one

  // make(step) is called once for each of 0, 1, ... up to `steps`, by several workers at once, each with a
  // stream of its own on `device` to which it may leave copies under way.
  Prefetch(std::function<Batch(int64_t step)> make, int64_t steps, at::Device device, int64_t workers = 1);
  ~Prefetch();  // waits for the batches that are being made, if any

  // The batch of step 0, 1, ... in turn; work on the current stream finds it complete. Throws what `make` has
  // thrown for this step, from then on every time.
  Batch next();

 private:
  struct Made {
    Batch batch;
    std::optional<c10::Event> complete;  // on a device
    std::exception_ptr failure;
  };

  void work();
  Made made(int64_t step) const;
  void stop();

  const std::function<Batch(int64_t)> make_;
  const int64_t steps_;
  const at::Device device_;
  const int64_t ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Made> ready_;  // by step
  int64_t begun_ = 0;              // steps whose batch somebody makes or has made
  int64_t taken_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bnlab
