// An emulated GPU: what the CUDA sources of strategies/kernels use of CUDA, for the host compiler. The
// threads of a block are fibres that take turns between barriers, blocks run one after another, shared memory
// is static. README.md says what this can judge and what it cannot.
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __restrict__ __restrict
// One section holds all shared memory, so that every block finds it poisoned.
#define __shared__ [[gnu::section("emulated_shared")]] static
#define __syncthreads() ::emulation::barrier(__LINE__)

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};
struct alignas(16) int4 {
  int x, y, z, w;
};

extern uint3 threadIdx, blockIdx;  // of the fibre that runs
extern dim3 blockDim, gridDim;

inline void __stwb(int4* p, int4 value) {
  *p = value;
}
inline void __threadfence() {}
template <class T>
T atomicAdd(T* p, T value) {
  const T before = *p;
  *p += value;
  return before;
}
inline unsigned atomicInc(unsigned* p, unsigned last) {  // 0, 1, ..., last, 0, ...
  const unsigned before = *p;
  *p = before >= last ? 0 : before + 1;
  return before;
}

constexpr int cudaDevAttrMultiProcessorCount = 16;
#define C10_CUDA_CHECK(call) (call)
inline void cudaGetDevice(int* device) {
  *device = 0;
}
inline void cudaDeviceGetAttribute(int* value, int, int) {
  *value = 132;
}

namespace emulation {

// In which order the threads between two barriers and the blocks of a grid run.
enum class Order { ascending, descending, shuffled };
void set_order(Order order);

struct Counts {
  int64_t launches = 0, blocks = 0, barriers = 0;
};
Counts& counts();  // since the program began

void barrier(int line);
// Calls body() once for every thread. Throws std::runtime_error for what a GPU would refuse, and where
// threads of a block part at a barrier.
void run_grid(dim3 grid, dim3 block, size_t argument_bytes, const std::function<void()>& body);

}  // namespace emulation

// Stands for strategies/kernels/launch.cuh.
namespace bnlab::kernels::cuda {

constexpr int64_t kMinimumTickets = 1;  // no more than are asked for, so that too few are found

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Arguments&... arguments) {
  const std::tuple<Parameters...> values(arguments...);
  emulation::run_grid(grid, block, sizeof(values), [&] { std::apply(kernel, values); });
}

}  // namespace bnlab::kernels::cuda
