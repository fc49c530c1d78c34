// The stream that a rank's work on a GPU goes to.
#pragma once

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>

namespace bnlab {

// While this lives, its thread works on a stream of its own from the device's pool; on the CPU nothing changes. The
// default stream is one for all threads of a process: of two ranks on one GPU, the second one's collective would wait
// there behind the first one's, which in turn waits for it.
class OwnStream {
 public:
  explicit OwnStream(at::Device device) {
    if (!device.is_cpu()) {
      guard_ = std::make_unique<c10::StreamGuard>(
          c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device));
    }
  }

 private:
  std::unique_ptr<c10::StreamGuard> guard_;  // null on the CPU
};

}  // namespace bnlab
