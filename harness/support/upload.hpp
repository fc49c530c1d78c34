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

// Bytes that each training step takes anew from the host, as the masks of dropout and the learning rate. They
// are no uploads that forbid replays: every step finds them in the same memory, where those of the next step
// are written before it is replayed. That memory is taken in steps which are not recorded: within a
// recording, work that comes before would use it for other things. It is one for all bytes of a step, so that
// a replay costs one copy.
class StepBytes {
 public:
  // Writes the bytes of a training step; called again before every replay, so it holds what it needs.
  using Write = std::function<void(uint8_t* bytes, uint64_t step)>;

  void begin_step(uint64_t step) {
    step_ = step;
    next_ = 0;
    if (!together_) lay_together();
  }
  // Around a recording. The step takes its bytes in it, and once more where the recording has failed.
  void begin_recording() { recording_ = true; }
  void end_recording(bool failed) {
    recording_ = false;
    next_ = failed ? 0 : next_;
  }

  // [count] bytes of the step under way, on the device. Steps that follow each other take the same counts in
  // the same order. Throws c10::Error where a step that is recorded takes others than the one before.
  at::Tensor take(int64_t count, at::Device device, Write write) {
    const bool records = recording_ && !device.is_cpu();  // on the CPU recorded work is done at once
    if (next_ == taken_.size()) taken_.emplace_back();
    Taken& taken = taken_[next_++];
    if (!taken.bytes.defined() || taken.bytes.numel() != count) {
      TORCH_CHECK(!records, "a step took other numbers from the host than the step before");
      taken.bytes = at::empty({count}, at::TensorOptions().dtype(at::kByte).device(device));
      together_ = false;
    }
    taken.write = std::move(write);
    if (!records) {
      const at::Tensor host = on_host(count, device);
      taken.write(host.mutable_data_ptr<uint8_t>(), step_);
      taken.bytes.copy_(host, /*non_blocking=*/true);
    }
    return taken.bytes;
  }

  // Writes what the recorded step takes for the step under way.
  void write() const {
    if (!all_.defined()) return;
    const at::Tensor host = on_host(all_.numel(), all_.device());
    for (const Taken& taken : taken_)
      taken.write(host.mutable_data_ptr<uint8_t>() + taken.bytes.storage_offset(), step_);
    all_.copy_(host, /*non_blocking=*/true);
  }

 private:
  static constexpr int64_t kAlignment = 16;  // a step takes so many bytes at once

  struct Taken {
    at::Tensor bytes;  // part of all_, once they lie together
    Write write;
  };

  static at::Tensor on_host(int64_t count, at::Device device) {
    return at::empty({count}, at::TensorOptions().dtype(at::kByte).pinned_memory(device.is_cuda()));
  }

  void lay_together() {
    std::vector<int64_t> begins;
    int64_t size = 0;
    for (const Taken& taken : taken_) {
      begins.push_back(size);
      size += (taken.bytes.numel() + kAlignment - 1) / kAlignment * kAlignment;
    }
    all_ = at::empty({size}, taken_.front().bytes.options());
    for (size_t i = 0; i < taken_.size(); ++i)
      taken_[i].bytes = all_.narrow(0, begins[i], taken_[i].bytes.numel());
    together_ = true;
  }

  std::vector<Taken> taken_;  // in the order in which a step takes them
  at::Tensor all_;            // undefined where steps take none
  bool together_ = true;      // whether all that steps take lies there
  size_t next_ = 0;
  uint64_t step_ = 0;
  bool recording_ = false;
};

// Numbers of a schedule that a recorded step finds on the device, [values.size()] of `type`, which is float32
// or float64: each the value of its function in the step under way.
inline at::Tensor numbers_of_step(StepBytes& bytes, std::vector<std::function<double(int64_t step)>> values,
                                  at::ScalarType type, at::Device device) {
  TORCH_INTERNAL_ASSERT(type == at::kFloat || type == at::kDouble);
  const auto count = static_cast<int64_t>(values.size());
  const auto write = [values = std::move(values), type](uint8_t* to, uint64_t step) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = values[i](static_cast<int64_t>(step));
      if (type == at::kFloat)
        reinterpret_cast<float*>(to)[i] = static_cast<float>(value);
      else
        reinterpret_cast<double*>(to)[i] = value;
    }
  };
  return bytes.take(count * static_cast<int64_t>(c10::elementSize(type)), device, write).view(type);
}

}  // namespace bnlab
