// How a function body(i) of channel.hpp is called for every item i: in a loop on the CPU, and in one launch
// with a thread per item on CUDA.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <cstdint>

#include "harness/communicator/peers.hpp"
#include "harness/support/kernel_count.hpp"
#include "strategies/kernels/channel.hpp"

namespace bnlab::kernels {

// From here on an item that goes over so many rows has several threads on CUDA.
constexpr int64_t kManyRows = 16;

#ifdef BNLAB_WITH_CUDA
namespace cuda {
template <class Body>
void each_item(const Body& body, int64_t items, at::Device device);  // steps.cu
// The same behind a gather of rows of values T, item by item a channel of theirs.
template <class T, class Body>
void each_item_of(const peers::Gather& gather, const Body& body, at::Device device);
}  // namespace cuda
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
  for (int64_t i = 0; i < items; ++i) body(i);
}

// What such a function is handed of a tensor: its elements, null where it is undefined.
template <class T>
const T* read(const at::Tensor& t) {
  TORCH_INTERNAL_ASSERT(!t.defined() || t.is_contiguous());
  return t.defined() ? t.const_data_ptr<T>() : nullptr;
}
template <class T>
T* written(const at::Tensor& t) {
  TORCH_INTERNAL_ASSERT(!t.defined() || t.is_contiguous());
  return t.defined() ? t.mutable_data_ptr<T>() : nullptr;
}
template <class T>
CoefficientsOf<const T*> read(const Coefficients& k) {
  return {
      .mean = read<T>(k.mean),
      .invstd = read<T>(k.invstd),
      .scale = read<T>(k.scale),
      .shift = read<T>(k.shift),
      .count = read<T>(k.count),
      .r = read<T>(k.r),
      .d = read<T>(k.d),
  };
}

template <class T>
CoefficientsOf<T*> written(const Coefficients& k) {
  return {
      .mean = written<T>(k.mean),
      .invstd = written<T>(k.invstd),
      .scale = written<T>(k.scale),
      .shift = written<T>(k.shift),
      .count = written<T>(k.count),
      .r = written<T>(k.r),
      .d = written<T>(k.d),
  };
}

template <class T>
BackwardCoefficientsOf<T*> written(const BackwardCoefficients& k) {  // the mean is the forward pass's
  return {
      .a = written<T>(k.a),
      .b = written<T>(k.b),
      .c = written<T>(k.c),
      .dweight = written<T>(k.dweight),
      .dbias = written<T>(k.dbias),
  };
}

// Of packed moments, whose rows may be expanded: stride 0.
inline channel::Rows rows_of(const at::Tensor& packed) {
  TORCH_INTERNAL_ASSERT(packed.scalar_type() == at::kDouble && packed.dim() == 2 && packed.stride(1) == 1);
  return {
      .data = packed.const_data_ptr<double>(),
      .stride = packed.stride(0),
      .channels = (packed.size(1) - 1) / 2,
  };
}

// Calls work(T()) with T the C++ type of the statistics' precision.
template <class Work>
auto in_precision(at::ScalarType statistics, const Work& work) {
  return statistics == at::kDouble ? work(double()) : work(float());
}

}  // namespace bnlab::kernels
