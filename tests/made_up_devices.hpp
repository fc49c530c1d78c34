// Two devices with streams and events that exist in the tests only, for what is otherwise seen on GPUs alone.
// Each thread has a current device and a current stream; the pool hands out streams 1, 2, ...; work takes no
// time.
#pragma once

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <utility>

namespace bnlab::made_up {

inline const c10::Device kDevice{c10::DeviceType::PrivateUse1, 1};

// As LibTorch does it for GPUs: a thread's current stream lies in memory that is made when the thread first
// asks and freed when it ends. A stream that is set after that would be written into freed memory; here it is
// counted.
inline std::atomic<int> streams_set_too_late{0};
inline thread_local bool streams_are_gone = false;

class CurrentStream {
 public:
  ~CurrentStream() { streams_are_gone = true; }
  c10::StreamId id = 0;
};

inline c10::StreamId& current_stream() {
  thread_local CurrentStream stream;
  return stream.id;
}

inline thread_local c10::DeviceIndex current_device = 0;
inline std::atomic<c10::StreamId> streams_handed_out{0};
inline std::atomic<c10::StreamId> last_of_high_priority{0};
inline std::atomic<int> events_made{0};
inline std::atomic<bool> events_have_come{true};

class Devices : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kDevice.type(); }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {type(), std::exchange(current_device, device.index())};
  }
  c10::Device getDevice() const override { return {type(), current_device}; }
  void setDevice(c10::Device device) const override { current_device = device.index(); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current_device = device.index(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 2; }

  c10::Stream getStream(c10::Device device) const noexcept override {
    return stream(device, current_stream());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority) const override {
    const c10::StreamId next = ++streams_handed_out;
    if (high_priority) last_of_high_priority = next;
    return stream(device, next);
  }
  c10::Stream exchangeStream(c10::Stream next) const noexcept override {
    if (streams_are_gone) {
      ++streams_set_too_late;
      return stream(next.device(), 0);
    }
    return stream(next.device(), std::exchange(current_stream(), next.id()));
  }

  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) {
      *event = new char;
      ++events_made;
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<char*>(event);
  }
  bool queryEvent(void*) const override { return events_have_come; }
  void synchronizeEvent(void*) const override {}
  double elapsedTime(void*, void*, const c10::DeviceIndex) const override { return 1; }

 private:
  static c10::Stream stream(c10::Device device, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device, id);
  }
};

inline const c10::impl::DeviceGuardImplRegistrar registered(c10::DeviceType::PrivateUse1, new Devices);

}  // namespace bnlab::made_up
