#include "harness/training/prefetch.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <memory>
#include <utility>

#include "harness/communicator/own_stream.hpp"

namespace bnlab {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

Prefetch::Prefetch(std::function<Batch(int64_t)> make, int64_t steps, at::Device device, int64_t workers)
    : make_(std::move(make)), steps_(steps), device_(device), ahead_(kAhead + workers - 1) {
  try {
    for (int64_t w = 0; w < workers; ++w) threads_.emplace_back([this] { work(); });
  } catch (...) {  // the system has no more threads
    stop();
    throw;
  }
}

Prefetch::~Prefetch() {
  stop();
}

void Prefetch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Batch Prefetch::next() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ready_.count(taken_) > 0; });
  if (ready_.at(taken_).failure) std::rethrow_exception(ready_.at(taken_).failure);
  Made made = std::move(ready_.extract(taken_).mapped());
  ++taken_;
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
  // The stream goes back before the thread ends: LibTorch keeps a thread's current streams in a thread_local
  // array, which is gone before any thread_local that was reached earlier.
  std::unique_ptr<OwnStream> stream;
  std::exception_ptr no_stream;
  try {
    stream = std::make_unique<OwnStream>(device_, OwnStream::Priority::high);
  } catch (...) {
    no_stream = std::current_exception();  // the first step to come tells it
  }
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopped_ || begun_ == steps_ || begun_ < taken_ + ahead_; });
    if (stopped_ || begun_ == steps_) return;
    const int64_t step = begun_++;
    lock.unlock();
    Made next = no_stream ? Made{{}, std::nullopt, no_stream} : made(step);
    lock.lock();
    ready_.emplace(step, std::move(next));
    changed_.notify_all();
  }
}

}  // namespace bnlab
