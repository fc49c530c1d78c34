// Which threads of a sweep visit which elements, and how they load and store them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "strategies/kernels/launch.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int kThreads = kBlockThreads;

// The walk: kMaxSlices slices in one launch. Block z takes a slice, block x a tile of channels (rows: [rows *
// plane, channels]) or one channel (planes: [rows, channels, plane]), block y a part of that slice's rows or
// of its planes. The cuts travel in the kernel's argument, so that nothing is copied to the device.

// Which rows belong to which slice: slice first_slice + z has rows offset[z] to offset[z + 1].
struct Cut {
  int64_t channels, plane;
  int64_t first_slice;
  int64_t plane_parts;  // planes: block y = row part * plane_parts + plane part
  int64_t offset[kMaxSlices + 1];
};

// Where a thread works. `channel` is the first of its V channels.
struct Place {
  int64_t slice, channel, channels;
  bool inside;  // rows: false right of the last channel, where channel is 0
};

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T value[V];
};

// The type that the GPU loads and stores in one piece.
template <int kBytes>
using Piece =
    std::conditional_t<kBytes == 16, int4,
                       std::conditional_t<kBytes == 8, int2, std::conditional_t<kBytes == 4, int, short>>>;

// Of a tensor that the kernel does not write: such a load may begin before an earlier store ends.
template <int V, class T>
__device__ Pack<T, V> load(const T* p) {
  using Bits = Piece<sizeof(T) * V>;
  const Bits bits = __ldg(reinterpret_cast<const Bits*>(p));
  Pack<T, V> pack;
  memcpy(&pack, &bits, sizeof pack);
  return pack;
}

template <class T, int V>
__device__ void store(T* p, const Pack<T, V>& pack) {
  using Bits = Piece<sizeof(pack)>;
  Bits bits;
  memcpy(&bits, &pack, sizeof bits);
  __stwb(reinterpret_cast<Bits*>(p), bits);  // nvcc splits a plain assignment in unrolled loops
}

__device__ inline int thread_in_block() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}

template <bool kRows, int V>
__device__ Place place_of(const Cut& cut) {
  int64_t channel = blockIdx.x;
  if (kRows) channel = (channel * blockDim.x + threadIdx.x) * V;
  Place place;
  place.inside = channel < cut.channels;
  place.slice = cut.first_slice + blockIdx.z;
  place.channel = place.inside ? channel : 0;
  place.channels = cut.channels;
  return place;
}

// How many of k, k + step, k + 2 step, ... lie before `end`. No thread has 2^31 of them (cuda.cu).
__device__ inline int places(int64_t k, int64_t end, int64_t step) {
  return k < end ? static_cast<int>((end - k + step - 1) / step) : 0;
}

// Calls f(i, stride, n) for `count` places, n of them at a time: i is the first of the V neighbouring
// elements of the first place, and the places lie `stride` apart. n is an integral_constant: kBatch, a power
// of two, and at the end a half of it, and so on.
template <int kBatch, class F>
__device__ void steps(int64_t i, int64_t stride, int count, F f) {
  for (; count >= kBatch; count -= kBatch, i += kBatch * stride)
    f(i, stride, std::integral_constant<int, kBatch>());
  if constexpr (kBatch > 1) steps<kBatch / 2>(i, stride, count, f);
}

template <bool kRows, int V, int kBatch, class F>
__device__ void walk(const Cut& cut, F f) {
  const Place place = place_of<kRows, V>(cut);
  const int64_t begin = cut.offset[blockIdx.z], end = cut.offset[blockIdx.z + 1];
  const int64_t width = blockDim.x, height = blockDim.y;
  const int64_t channels = cut.channels, plane = cut.plane;
  if (kRows) {
    if (!place.inside) return;
    const int64_t row = begin * plane + blockIdx.y * height + threadIdx.y, step = height * gridDim.y;
    steps<kBatch>(place.channel + row * channels, step * channels, places(row, end * plane, step), f);
  } else {
    const int64_t row_part = blockIdx.y / cut.plane_parts, plane_part = blockIdx.y % cut.plane_parts;
    const int64_t row_step = height * (gridDim.y / cut.plane_parts), step = width * V * cut.plane_parts;
    const int64_t first = (plane_part * width + threadIdx.x) * V;
    const int count = places(first, plane, step);
    for (int64_t r = begin + row_part * height + threadIdx.y; r < end; r += row_step)
      steps<kBatch>((r * channels + place.channel) * plane + first, step, count, f);
  }
}

}  // namespace
}  // namespace bnlab::kernels::cuda
