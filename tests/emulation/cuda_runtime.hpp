// What the CUDA sources of strategies/kernels use of CUDA's runtime header, for the host compiler.
#pragma once

#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__

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
struct alignas(8) int2 {
  int x, y;
};

constexpr int cudaDevAttrMultiProcessorCount = 16;
#define C10_CUDA_CHECK(call) (call)
inline void cudaGetDevice(int* device) {
  *device = 0;
}
inline void cudaDeviceGetAttribute(int* value, int, int) {
  *value = 132;
}
