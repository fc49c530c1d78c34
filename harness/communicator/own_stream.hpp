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
// it is then none of theirs, unless TORCH_NCCL_HIGH_PRIORITY is set.
class OwnStream {
 public:
  enum class Priority { ordinary, high };

  explicit OwnStream(at::Device device, Priority priority = Priority::ordinary) {
    if (device.is_cpu()) return;
    const std::lock_guard lock(choosing());
    place_ = taken_place(device, priority);
    places()[place_].in_use = true;
    guard_ = std::make_unique<c10::StreamGuard>(places()[place_].stream);
  }

  ~OwnStream() {
    if (guard_) {
      const std::lock_guard lock(choosing());
      places()[place_].in_use = false;
    }
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

 private:
  static constexpr int kInPool = 32;

  struct Place {
    c10::Stream stream;
    Priority priority;
    bool in_use;
  };

  static std::mutex& choosing() {
    static std::mutex mutex;
    return mutex;
  }
  static std::vector<Place>& places() {
    static auto& places = *new std::vector<Place>;  // threads may end after main()
    return places;
  }

  // A stream that somebody has given back comes first: memory that was freed on a stream is kept for it. Else
  // the pool's next one that nobody has had; it hands its streams out in turn, over and over again.
  static size_t taken_place(at::Device device, Priority priority) {
    const auto free = std::ranges::find_if(places(), [&](const Place& place) {
      return !place.in_use && place.priority == priority && place.stream.device() == device;
    });
    if (free != places().end()) return static_cast<size_t>(free - places().begin());
    const c10::impl::VirtualGuardImpl devices(device.type());
    const auto next = [&] { return devices.getStreamFromGlobalPool(device, priority == Priority::high); };
    c10::Stream stream = next();
    for (int i = 0; i < kInPool && std::ranges::count(places(), stream, &Place::stream) > 0; ++i)
      stream = next();
    places().push_back({stream, priority, false});
    return places().size() - 1;
  }

  size_t place_ = 0;
  std::unique_ptr<c10::StreamGuard> guard_;  // null on the CPU
};

}  // namespace bnlab
