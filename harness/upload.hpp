// A few numbers that are known on the host, on a device.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
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

}  // namespace bnlab
