// How the CUDA kernels walk a tensor of either layout, kMaxSlices slices in one launch: block z takes a slice,
// block x a tile of channels (rows: [rows * plane, channels]) or one channel (planes: [rows, channels,
// plane]), block y a share of that slice's rows or of its planes. The cuts travel in the kernel argument,
// so nothing is copied to the device.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "strategies/kernels/backend.hpp"

namespace bnlab::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerProcessor = 4;    // at once, of the kernels that sum
constexpr int kMaxSlices = 256;           // in one launch
constexpr int64_t kMinimumSteps = 4;      // of a thread, before another block is worth it
constexpr int64_t kMaximumSteps = 1024;   // of a thread, or (planes) up to twice that: it sums in float32
constexpr int64_t kMaximumParts = 65535;  // what gridDim.y may be

// Which rows belong to which slice: slice first_slice + z has rows offset[z] to offset[z + 1].
struct Cut {
  int64_t channels, plane;
  int64_t first_slice;
  int64_t plane_parts;  // planes: block y = row part * plane_parts + plane part
  int64_t offset[kMaxSlices + 1];
};

struct Place {
  int64_t slice, channel, channels;  // of V channels, the first
  bool inside;                       // rows: false right of the last channel, where channel is 0
};

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

template <int V, class T>
__device__ Pack<T, V> load(const T* p) {
  return *reinterpret_cast<const Pack<T, V>*>(p);
}

template <class T, int V>
__device__ void store(T* p, const Pack<T, V>& pack) {
  if constexpr (sizeof(pack) == sizeof(int4)) {  // nvcc splits a plain assignment in unrolled loops
    __stwb(reinterpret_cast<int4*>(p), *reinterpret_cast<const int4*>(&pack));
  } else {
    *reinterpret_cast<Pack<T, V>*>(p) = pack;
  }
}

__device__ inline int thread_in_block() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}

template <bool kRows, int V>
__device__ Place place_of(const Cut& cut) {
  int64_t channel = blockIdx.x;
  if (kRows) channel = (channel * blockDim.x + threadIdx.x) * V;
  const bool inside = channel < cut.channels;
  return {cut.first_slice + blockIdx.z, inside ? channel : 0, cut.channels, inside};
}

// f(i, stride, n) for every V neighbouring elements, i the first, that fall to this thread: at i and, `stride` apart,
// at n - 1 places more, where n is an integral_constant: kBatch, or 1 at the end.
template <int kBatch, class F>
__device__ void steps(int64_t k, int64_t end, int64_t step, int64_t first, int64_t unit, F f) {
  if constexpr (kBatch > 1) {
    for (; k + (kBatch - 1) * step < end; k += kBatch * step) {
      f(first + k * unit, step * unit, std::integral_constant<int, kBatch>());
    }
  }
#pragma unroll 4
  for (; k < end; k += step) f(first + k * unit, step * unit, std::integral_constant<int, 1>());
}

template <bool kRows, int V, int kBatch, class F>
__device__ void walk(const Cut& cut, F f) {
  const Place place = place_of<kRows, V>(cut);
  const int64_t begin = cut.offset[blockIdx.z], end = cut.offset[blockIdx.z + 1];
  const int64_t width = blockDim.x, height = blockDim.y;
  const int64_t channels = cut.channels, plane = cut.plane;  // read once: a store might change the cut
  if (kRows) {
    if (!place.inside) return;
    const int64_t row = begin * plane + blockIdx.y * height + threadIdx.y;
    steps<kBatch>(row, end * plane, height * gridDim.y, place.channel, channels, f);
  } else {
    const int64_t row_part = blockIdx.y / cut.plane_parts, plane_part = blockIdx.y % cut.plane_parts;
    const int64_t row_step = height * (gridDim.y / cut.plane_parts), step = width * V * cut.plane_parts;
    for (int64_t r = begin + row_part * height + threadIdx.y; r < end; r += row_step) {
      const int64_t start = (r * channels + place.channel) * plane;
      steps<kBatch>((plane_part * width + threadIdx.x) * V, plane, step, start, 1, f);
    }
  }
}

// The launches of one kernel: the same grid but for the number of slices. Shapes and the GPU decide it,
// so the last bits of a sum may differ between GPU models and between placements.
struct Launches {
  dim3 grid, block;  // grid.z is set per cut
  std::vector<Cut> cuts;
  std::vector<unsigned> slices;
};

inline int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The smallest power of two that is at least n, but at most `limit`, a power of two.
inline int64_t power_of_two(int64_t n, int64_t limit) {
  int64_t p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

// How finely a kernel may be cut. Where parts of a slice have to be merged, they are few.
struct Limits {
  int64_t width;   // threads side by side
  int64_t blocks;  // wanted in all: enough to fill the GPU
  int64_t parts;   // of a slice, but for sums of more than kMaximumSteps
};

inline Launches plan_launches(const Layout& layout, const Offsets& offsets, int vector,
                              const Limits& limits) {
  Launches plan;
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  int64_t rows = 0;  // of the longest slice
  for (int64_t s = 0; s < slices; ++s) rows = std::max(rows, offsets[s + 1] - offsets[s]);
  const bool by_rows = layout.channels_last;
  const int64_t across = ceil_divide(by_rows ? layout.channels : layout.plane, vector);
  const int64_t width = power_of_two(across, by_rows ? limits.width : kThreads);
  const int64_t height = kThreads / width;
  const int64_t tiles = by_rows ? ceil_divide(across, width) : layout.channels;
  const int64_t steps = by_rows ? ceil_divide(rows * layout.plane, height)
                                : ceil_divide(rows, height) * ceil_divide(across, width);
  const int64_t to_fill = limits.blocks / (tiles * std::min<int64_t>(slices, kMaxSlices));
  const int64_t wanted = std::clamp<int64_t>(
      std::max(std::min(to_fill, limits.parts), ceil_divide(steps, kMaximumSteps)), 1, kMaximumParts);
  int64_t plane_parts = 1, row_parts = 1;
  if (by_rows) {
    row_parts = std::clamp<int64_t>(ceil_divide(rows * layout.plane, height * kMinimumSteps), 1, wanted);
  } else {
    plane_parts = std::clamp<int64_t>(ceil_divide(across, width * kMinimumSteps), 1, wanted);
    row_parts = std::clamp<int64_t>(ceil_divide(rows, height), 1, std::max<int64_t>(1, wanted / plane_parts));
  }
  TORCH_CHECK(tiles <= 0x7fffffff, "kernels: too many channels for one launch: ", layout.channels);
  plan.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(row_parts * plane_parts), 1);
  plan.block = dim3(static_cast<unsigned>(width), static_cast<unsigned>(height), 1);
  for (int64_t first = 0; first < slices; first += kMaxSlices) {
    Cut cut{layout.channels, layout.plane, first, plane_parts, {}};
    const int64_t count = std::min<int64_t>(kMaxSlices, slices - first);
    std::copy_n(offsets.begin() + first, count + 1, cut.offset);
    plan.cuts.push_back(cut);
    plan.slices.push_back(static_cast<unsigned>(count));
  }
  return plan;
}

}  // namespace
}  // namespace bnlab::kernels::cuda
