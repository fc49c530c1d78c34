// A few numbers that are known on the host, on a device.
#pragma once

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace bnlab {

// [values.size()], of the type of the values. To a GPU they go through pinned memory: the host would wait for all work
// on the stream before it copied from its ordinary memory.
template <class T>
at::Tensor uploaded(const std::vector<T>& values, at::Device device) {
  const auto type = c10::CppTypeToScalarType<T>::value;
  const auto size = static_cast<int64_t>(values.size());
  const at::Tensor host = at::empty({size}, at::TensorOptions().dtype(type).pinned_memory(device.is_cuda()));
  std::copy(values.begin(), values.end(), host.mutable_data_ptr<T>());
  return host.to(device, /*non_blocking=*/true);
}

}  // namespace bnlab
