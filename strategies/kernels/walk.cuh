// Which threads of a sweep visit which elements, and how they load and store them.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "strategies/kernels/launch.cuh"

namespace bnlab::kernels::cuda {

// Which rows belong to which slice: slice first_slice + z has rows offset[z] to offset[z + 1].
struct Cut {
  int64_t channels, plane;
  int64_t first_slice;
  int64_t offset[kMaxSlices + 1];
};

namespace {

constexpr int kThreads = kBlockThreads;

// The walk: kMaxSlices slices in one launch. Block z takes a slice, block x a tile of channels, block y a
// part of that slice. By rows ([rows * plane, channels]) the threads of a block's row stand side by side over
// the tile; by planes ([rows, channels, plane]) a row of threads has a channel of its own, over whose planes
// it goes as if they were one. The cuts travel in the kernel's argument: nothing is copied to the device.

// Where a thread works. `channel` is the first of its V channels.
struct Place {
  int64_t slice, channel, channels;
  bool inside;  // false right of the last channel, where channel is 0
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
  channel = kRows ? (channel * blockDim.x + threadIdx.x) * V : channel * blockDim.y + threadIdx.y;
  Place place;
  place.inside = channel < cut.channels;
  place.slice = cut.first_slice + blockIdx.z;
  place.channel = place.inside ? channel : 0;
  place.channels = cut.channels;
  return place;
}

// The places of a thread, one after the other: `at` is the first of V neighbouring elements.
template <bool kRows, int V>
struct Steps {
  int64_t at, end;  // no place from `end` on belongs to the slice
  int64_t step;
  int64_t column = 0, turn = 0, across = 0, wrap = 0;  // planes: in vectors, but for `wrap`

  __device__ Steps(const Cut& cut, const Place& place) {
    const int64_t of_row = cut.channels * cut.plane, begin = cut.offset[blockIdx.z];
    end = place.inside ? cut.offset[blockIdx.z + 1] * of_row : 0;
    if (kRows) {
      const int64_t row = begin * cut.plane + blockIdx.y * blockDim.y + threadIdx.y;
      at = place.channel + row * cut.channels;
      step = cut.channels * (blockDim.y * gridDim.y);
    } else {  // neither number reaches 2^32, nor does a quotient or remainder depend on more of `across`
      const unsigned first = blockIdx.y * blockDim.x + threadIdx.x, stride = blockDim.x * gridDim.y;
      across = cut.plane / V;
      const auto width = static_cast<unsigned>(across < 0x7fffffff ? across : 0x7fffffff);
      column = first % width;
      turn = stride % width;
      at = (begin + first / width) * of_row + place.channel * cut.plane + column * V;
      step = stride / width * of_row + turn * V;
      wrap = of_row - across * V;
    }
  }

  __device__ void next() {
    at += step;
    if (kRows) return;
    column += turn;
    if (column < across) return;
    column -= across;
    at += wrap;
  }
};

// Calls f(at, count) with kBatch places at a time, of which the first `count` are there: an integral_constant
// where all are, so that no place of such a batch is asked for again.
template <bool kRows, int V, int kBatch, class F>
__device__ void walk(const Cut& cut, const Place& place, F f) {
  Steps<kRows, V> steps(cut, place);
  int64_t at[kBatch];
  const auto take = [&] {
    for (int k = 0; k < kBatch; ++k, steps.next()) at[k] = steps.at;
  };
  for (take(); at[kBatch - 1] < steps.end; take()) f(at, std::integral_constant<int, kBatch>());
  int count = 0;
  for (int k = 0; k < kBatch; ++k) count += at[k] < steps.end;
  if (count > 0) f(at, count);
}

}  // namespace
}  // namespace bnlab::kernels::cuda
