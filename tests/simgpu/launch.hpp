// Stands for strategies/kernels/launch.cuh and harness/support/launch.cuh: a kernel's grid is work on a
// simulated stream, done by the emulated GPU of tests/emulation, one grid at a time.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <typeinfo>

#include "tests/emulation/device.hpp"
#include "tests/simgpu/simgpu.hpp"

namespace simgpu {

std::string name_of(const void* kernel, const std::type_info& parameters);
void run_grid(dim3 grid, dim3 block, size_t argument_bytes,
              const std::function<void()>& body);  // kernels.cpp

}  // namespace simgpu

namespace bnlab {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Arguments&... arguments) {
  const std::tuple<Parameters...> values(arguments...);
  C10_CUDA_CHECK(simgpu::enqueue(
      c10::cuda::getCurrentCUDAStream(), simgpu::Sort::kernel,
      simgpu::name_of(reinterpret_cast<const void*>(kernel), typeid(std::tuple<Parameters...>)),
      simgpu::once(
          [=] { simgpu::run_grid(grid, block, sizeof(values), [&] { std::apply(kernel, values); }); })));
}

}  // namespace bnlab

namespace bnlab::kernels::cuda {

using bnlab::launch;

inline bool capturing() {
  return simgpu::capturing(c10::cuda::getCurrentCUDAStream());
}

// A quarter of a GPU's threads, and an eighth of its slices: here a thread costs its waiting at barriers, and
// a copy of where every slice lies.
constexpr int kBlockThreads = 64, kMaxSlices = 32;
constexpr int64_t kMinimumTickets = 4096, kSmallBytes = 16 << 20;  // as on a GPU

}  // namespace bnlab::kernels::cuda
