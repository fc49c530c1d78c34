#include "harness/communicator/peers.hpp"

#include <ATen/Dispatch.h>

#include "harness/communicator/peers.cuh"
#include "harness/support/launch.cuh"

namespace bnlab::peers {
namespace {

constexpr int kThreads = 512;

template <class Word>
__device__ void copy_words(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

__device__ void copy(std::byte* to, const std::byte* from, int64_t bytes) {
  const uintptr_t all =
      reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(bytes);
  if (all % 16 == 0)
    copy_words<int4>(to, from, bytes);
  else if (all % 8 == 0)
    copy_words<int64_t>(to, from, bytes);
  else if (all % 4 == 0)
    copy_words<int>(to, from, bytes);
  else
    copy_words<char>(to, from, bytes);
}

// How many bytes of a share one slot takes from `offset` on.
__device__ int64_t piece_of(const Share& share, int64_t offset) {
  const int64_t left = share.bytes - offset;
  return left < 0 ? 0 : left < kSlotBytes ? left : kSlotBytes;
}

// Calls receive(offset, half) once the pieces that begin at `offset` are in this rank's slots.
template <class Receive>
__device__ void in_pieces(const Ranks& ranks, const Call& call, const Receive& receive) {
  const int64_t first = blockIdx.x * kSlotBytes, stride = gridDim.x * kSlotBytes;
  in_epochs(
      ranks,
      [&](int64_t round, unsigned half) {
        const int64_t offset = first + round * stride;
        bool more = false;
        for (int r = 0; r < ranks.size; ++r) {
          const Share& share = call.sent[r];
          more = more || share.bytes > offset + stride;
          if (r != ranks.rank)
            copy(slot_of(ranks, r, half, ranks.rank), call.from + share.begin + offset,
                 piece_of(share, offset));
        }
        return more;
      },
      [&](int64_t round, unsigned half) { receive(first + round * stride, half); });
}

__global__ void __launch_bounds__(kThreads)
    exchange_kernel(const __grid_constant__ Ranks ranks, const __grid_constant__ Call call) {
  in_pieces(ranks, call, [&](int64_t offset, unsigned half) {
    for (int r = 0; r < ranks.size; ++r) {
      const std::byte* const own = call.from + call.sent[r].begin + offset;
      copy(call.to + call.received[r].begin + offset,
           r == ranks.rank ? own : slot_of(ranks, ranks.rank, half, r), piece_of(call.received[r], offset));
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    exchange_sum_kernel(const __grid_constant__ Ranks ranks, const __grid_constant__ Call call) {
  in_pieces(ranks, call, [&](int64_t offset, unsigned half) {
    const Share& share = call.received[ranks.rank];
    const int64_t elements = piece_of(share, offset) / static_cast<int64_t>(sizeof(T));
    const auto* const own = reinterpret_cast<const T*>(call.from + offset);
    auto* const sum = reinterpret_cast<T*>(call.to + offset);
    for (int64_t i = threadIdx.x; i < elements; i += blockDim.x) {
      T total{};
      for (int r = 0; r < ranks.size; ++r) {
        const T value =
            r == ranks.rank ? own[i] : reinterpret_cast<const T*>(slot_of(ranks, ranks.rank, half, r))[i];
        total = r == 0 ? value : static_cast<T>(total + value);
      }
      sum[i] = total;
    }
  });
}

}  // namespace

void exchange(const Ranks& ranks, const Call& call, int lanes) {
  launch(exchange_kernel, dim3(static_cast<unsigned>(lanes)), dim3(kThreads), ranks, call);
}

void exchange_sum(const Ranks& ranks, const Call& call, int lanes, at::ScalarType type) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "sum over ranks", [&] {
    launch(exchange_sum_kernel<scalar_t>, dim3(static_cast<unsigned>(lanes)), dim3(kThreads), ranks, call);
  });
}

}  // namespace bnlab::peers
