// How a function body(i) of channel.hpp is called for every item i: in a loop on the CPU, and in one launch
// with a thread per item on CUDA.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "harness/kernel_count.hpp"

namespace bnlab::kernels {

#ifdef BNLAB_WITH_CUDA
namespace cuda {
template <class Body>
void each_item(const Body& body, int64_t items, at::Device device);  // each_item.cu
}
#endif

template <class Body>
void each_item(const Body& body, int64_t items, [[maybe_unused]] const at::Tensor& on) {
  const OneKernel counted;
#ifdef BNLAB_WITH_CUDA
  if (on.is_cuda()) {
    cuda::each_item(body, items, on.device());
    return;
  }
#endif
  for (int64_t i = 0; i < items; ++i) {
    body(i);
  }
}

template <class T>
const T* given(const at::Tensor& t) {  // null for an undefined tensor
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}

// Calls work(T()) with T the C++ type of the statistics' precision.
template <class Work>
auto in_precision(at::ScalarType statistics, const Work& work) {
  return statistics == at::kDouble ? work(double()) : work(float());
}

}  // namespace bnlab::kernels
