// The stream that a rank's work on a GPU goes to.
#pragma once

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <vector>

namespace bnlab {

// While this lives, its thread works on a stream of its own from the device's pool; on the CPU nothing
// changes. There are two reasons. All threads of a process share the default stream, where the collective of
// a GPU's second rank would wait behind the first rank's, which in turn waits for the second's. And a stream
// that records a graph records all work that it is given, so that no other thread may use it.
//
// NCCL's streams are from the pool of ordinary priority, too, and a recording takes them in while an exchange
// is under way. Where nothing may be recorded, as copies that are made ahead, the stream is of high priority:
// it is then none of theirs.
class OwnStream {
 public:
  enum class Priority { ordinary, high };

  explicit OwnStream(at::Device device, Priority priority = Priority::ordinary) {
    if (device.is_cpu()) {
      return;
    }
    const c10::impl::VirtualGuardImpl devices(device.type());
    const std::lock_guard lock(choosing());
    const bool high = priority == Priority::high;
    c10::Stream stream = devices.getStreamFromGlobalPool(device, high);
    // The pool hands its streams out in turn, over and over again.
    for (int i = 0; i < kInPool && std::ranges::count(in_use(), stream) > 0; ++i) {
      stream = devices.getStreamFromGlobalPool(device, high);
    }
    in_use().push_back(stream);
    guard_ = std::make_unique<c10::StreamGuard>(stream);
  }

  ~OwnStream() {
    if (guard_) {
      const std::lock_guard lock(choosing());
      in_use().erase(std::ranges::find(in_use(), guard_->current_stream()));
    }
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  static constexpr int kInPool = 32;

  static std::mutex& choosing() {
    static std::mutex mutex;
    return mutex;
  }
  static std::vector<c10::Stream>& in_use() {
    static auto& streams = *new std::vector<c10::Stream>;  // threads may end after main()
    return streams;
  }

  std::unique_ptr<c10::StreamGuard> guard_;  // null on the CPU
};

}  // namespace bnlab
