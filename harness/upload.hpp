// A few numbers that are known on the host, on a device.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace bnlab {

// How many uploads this process has made. The memory that one starts from is used again afterwards, so that a
// training step which makes any cannot be replayed (training/step_graphs.hpp).
inline std::atomic<int64_t> uploads{0};

// [values.size()], of the type of the values. To a GPU they go through pinned memory: the host would wait for
// all work on the stream before it copied from its ordinary memory.
template <class T>
at::Tensor uploaded(const std::vector<T>& values, at::Device device) {
  ++uploads;
  const auto type = c10::CppTypeToScalarType<T>::value;
  const auto size = static_cast<int64_t>(values.size());
  const at::Tensor host = at::empty({size}, at::TensorOptions().dtype(type).pinned_memory(device.is_cuda()));
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<T>());
  return host.to(device, /*non_blocking=*/true);
}

// Bytes that each training step takes anew from the host, as the masks of dropout. They are no uploads that
// forbid replays: every step finds them in the same memory, where those of the next step are written before
// it is replayed. That memory is taken in a step which is not recorded: within a recording, work that comes
// before would use it for other things.
class StepBytes {
 public:
  // Writes the bytes of a training step; called again before every replay, so it holds what it needs.
  using Write = std::function<void(uint8_t* bytes, uint64_t step)>;

  void begin_step(uint64_t step) {
    step_ = step;
    next_ = 0;
  }
  // Around a recording: the step takes its bytes in it, and once more where the recording has failed.
  void begin_recording() {
    recording_ = true;
    next_ = 0;
  }
  void end_recording() {
    recording_ = false;
    taken_.resize(next_);
    next_ = 0;
  }

  // [count] bytes of the step under way, on the device. Steps that follow each other take the same counts in
  // the same order. Throws c10::Error where a step that is recorded takes others than the one before.
  at::Tensor take(int64_t count, at::Device device, Write write) {
    const bool records = recording_ && !device.is_cpu();  // on the CPU recorded work is done at once
    if (next_ == taken_.size()) {
      taken_.emplace_back();
    }
    Taken& taken = taken_[next_++];
    if (!taken.bytes.defined() || taken.bytes.numel() != count) {
      TORCH_CHECK(!records, "a step took other numbers from the host than the step before");
      taken.bytes = at::empty({count}, at::TensorOptions().dtype(at::kByte).device(device));
    }
    taken.write = std::move(write);
    if (!records) {
      send(taken);
    }
    return taken.bytes;
  }

  // Writes what the recorded step takes for the step under way.
  void write() const {
    for (const Taken& taken : taken_) {
      send(taken);
    }
  }

 private:
  struct Taken {
    at::Tensor bytes;
    Write write;
  };

  void send(const Taken& taken) const {
    const bool pinned = taken.bytes.is_cuda();
    const at::Tensor host =
        at::empty({taken.bytes.numel()}, at::TensorOptions().dtype(at::kByte).pinned_memory(pinned));
    taken.write(host.mutable_data_ptr<uint8_t>(), step_);
    taken.bytes.copy_(host, /*non_blocking=*/true);
  }

  std::vector<Taken> taken_;  // in the order in which a step takes them
  size_t next_ = 0;
  uint64_t step_ = 0;
  bool recording_ = false;
};

}  // namespace bnlab
