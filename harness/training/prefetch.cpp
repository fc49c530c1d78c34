#include "harness/training/prefetch.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <utility>

#include "harness/communicator/own_stream.hpp"

namespace bnlab {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Prefetch::Prefetch(std::function<Batch(int64_t)> make, int64_t steps, at::Device device)
    : make_(std::move(make)), steps_(steps), device_(device), thread_([this] { work(); }) {}

Prefetch::~Prefetch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

Batch Prefetch::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ready_.empty(); });
  if (ready_.front().failure) {
    std::rethrow_exception(ready_.front().failure);
  }
  Made made = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  if (made.complete) {
    const c10::Stream here = current_stream(device_);
    made.complete->block(here);
    // Their memory is from the other stream, which must not use it again before the work here is done.
    made.batch.images.record_stream(here);
    made.batch.labels.record_stream(here);
  }
  return std::move(made.batch);
}

Prefetch::Made Prefetch::made(int64_t step) const {
  try {
    Made made{make_(step), std::nullopt, nullptr};
    if (!device_.is_cpu()) {
      made.complete.emplace(device_.type());
      made.complete->record(current_stream(device_));
    }
    return made;
  } catch (...) {
    return {{}, std::nullopt, std::current_exception()};
  }
}

void Prefetch::work() {
  const OwnStream stream(device_);
  bool failed = false;
  for (int64_t step = 0; step < steps_ && !failed; ++step) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || ready_.size() < kAhead; });
      if (stopped_) {
        return;
      }
    }
    Made next = made(step);
    failed = next.failure != nullptr;
    {
      const std::lock_guard lock(mutex_);
      ready_.push_back(std::move(next));
    }
    changed_.notify_all();
  }
}

}  // namespace bnlab
