// The kernel that sums over slices. Every block writes a partial result, and the block that ends last of
// those that share a tile of channels merges them. All orders are fixed, so that results do not depend on
// which that is.
#pragma once

#include <cuda_runtime.h>

#include <cuda/atomic>

#include <cstdint>
#include <cstring>

#include "strategies/kernels/cuda.cuh"

namespace bnlab::kernels::cuda {
namespace {

// What the lane that stands `distance` further has, of which bit by bit (xor) is counted.
template <class Number, class Values>
__device__ Values of_lane(const Values& own, int distance) {
  constexpr int kNumbers = sizeof(Values) / sizeof(Number);
  Number numbers[kNumbers];
  memcpy(numbers, &own, sizeof own);
  for (int k = 0; k < kNumbers; ++k) numbers[k] = __shfl_xor_sync(~0u, numbers[k], distance);
  Values other;
  memcpy(&other, numbers, sizeof other);
  return other;
}

// In loads of 16 bytes, or one of 8.
template <class Part>
__device__ Part load_part(const Part* p) {
  using Bits = Piece<sizeof(Part) < 16 ? 8 : 16>;
  Bits bits[sizeof(Part) / sizeof(Bits)];
  for (size_t k = 0; k < sizeof(Part) / sizeof(Bits); ++k) bits[k] = reinterpret_cast<const Bits*>(p)[k];
  Part part;
  memcpy(&part, bits, sizeof part);
  return part;
}

// True in the one block that calls this last of `blocks` blocks with the same ticket, which is 0 before and
// after. It then sees what the others wrote.
__device__ BNLAB_APART inline bool is_last_block(unsigned* ticket, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (thread_in_block() == 0) {
    const ::cuda::atomic_ref<unsigned, ::cuda::thread_scope_device> taken(*ticket);
    last = taken.fetch_add(1, ::cuda::memory_order_acq_rel) == blocks - 1;
    if (last) *ticket = 0;
  }
  __syncthreads();
  return last;
}

// The total of a channel's n elements in gridDim.y parts, `stride` apart, by a team of `team` neighbouring
// lanes of which each takes some. `parts` points to the first, or is null in a team without a channel.
template <class Op>
__device__ auto merge_parts(const typename Op::Part* parts, int64_t stride, unsigned lane, unsigned team,
                            int64_t n) {
  constexpr unsigned kAtOnce = sizeof(typename Op::Part) > 16 ? 2 : 8;
  typename Op::Merge merged;
  double base = 0.0;
  for (unsigned first = 0; first < gridDim.y; first += kAtOnce * team) {
    typename Op::Part loaded[kAtOnce] = {};
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const unsigned p = first + k * team + lane;
      if (parts != nullptr && p < gridDim.y) loaded[k] = load_part(parts + p * stride);
    }
    if (first == 0) base = __shfl_sync(~0u, Op::base(loaded[0]), thread_in_block() % 32 - lane);
    merged.add(loaded, base);
  }
  for (unsigned d = 1; d < team; d *= 2) merged.merge(of_lane<double>(merged, d));
  return merged.total(n, base);
}

// The lanes of a warp that share a channel (channel.hpp).
struct Lanes {
  int64_t own, all;
  __device__ int64_t lane() const { return own; }
  __device__ int64_t lanes() const { return all; }
  template <class T>
  __device__ T sum(T value) const {
    for (int d = 1; d < all; d *= 2) value += of_lane<T>(value, d);
    return value;
  }
};

// What the launches of one reduction have in common.
template <class Op>
struct Totals {
  typename Op::Part* parts;           // [slices, gridDim.y, channels]; not there where a slice has one part
  typename Op::Epilogue::Kept* kept;  // [slices, channels]
  unsigned* tickets;  // [slices + 1, gridDim.x]: a row for the tiles of each slice, the last for all slices
  unsigned slices;
  int team;  // the logarithm of how many threads share a channel after the walk
  typename Op::Epilogue epilogue;
};

template <class Op>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    reduce(const __grid_constant__ Cut cut, const Arguments<typename Op::T> in, const Totals<Op> to) {
  using A = Compute<typename Op::T>;
  constexpr bool kRows = Op::kRows;
  constexpr int V = Op::V;
  const Place place = place_of<kRows, V>(cut);
  Op op(in, place);
  walk<kRows, V, Op::kBatch>(cut, place, [&](const int64_t(&at)[Op::kBatch], auto count) {
    typename Op::Loaded loaded[Op::kBatch] = {};
    for (int k = 0; k < Op::kBatch; ++k)
      if (k < count) loaded[k] = Op::take(in, at[k]);
    op.begin(loaded[0]);
    for (int k = 0; k < Op::kBatch; ++k) op.use(in, at[k], loaded[k], k < count);
  });

  // The lanes of a warp that share channels merge their sums, then the warps of the block. The first of them
  // has elements where any has.
  auto sums = op.sums();
  const int t = thread_in_block(), width = kRows ? static_cast<int>(blockDim.x) : 1;
  for (int d = width; d < 32; d *= 2) sums.merge(of_lane<A>(sums, d));
  using One = decltype(sums.of(0));
  constexpr int kWarps = kThreads / 32;
  __shared__ One of_warps[kRows ? kWarps * kMaxTile : kWarps];
  const int tile = kRows ? width * V : static_cast<int>(blockDim.y);  // channels
  if (t % 32 < width)
    for (int k = 0; k < Op::N; ++k) of_warps[kRows ? t / 32 * tile + t % 32 * V + k : t / 32] = sums.of(k);
  __syncthreads();
  const int team = 1 << to.team, c = t >> to.team, lane = t & (team - 1);
  const int warps = kRows ? kWarps : static_cast<int>(blockDim.x) / 32;
  One all{};
  if (c < tile && lane < warps) {
    const auto of_warp = [&](int warp) { return of_warps[kRows ? warp * tile + c : c * warps + warp]; };
    all = of_warp(lane);
    for (int warp = lane + team; warp < warps; warp += team) all.merge(of_warp(warp));
  }
  for (int d = 1; d < team && d < warps; d *= 2) all.merge(of_lane<A>(all, d));

  // The total of the slice.
  const int64_t channels = cut.channels, channel = static_cast<int64_t>(blockIdx.x) * tile + c;
  const bool inside = c < tile && channel < channels, writes = inside && lane == 0;
  const typename Op::Part part = Op::part(all);
  if (gridDim.y > 1 && writes) to.parts[(place.slice * gridDim.y + blockIdx.y) * channels + channel] = part;
  if (gridDim.y > 1 && !is_last_block(to.tickets + place.slice * gridDim.x + blockIdx.x, gridDim.y)) return;
  const int64_t n = (cut.offset[blockIdx.z + 1] - cut.offset[blockIdx.z]) * cut.plane;
  const typename Op::Part* parts = to.parts + place.slice * gridDim.y * channels + channel;
  const auto total = gridDim.y == 1 ? Op::total(part, n)
                                    : merge_parts<Op>(inside ? parts : nullptr, channels, lane, team, n);
  typename Op::Epilogue::Kept kept{};
  if (writes)
    kept = to.epilogue.of_slice(place.slice, channel, channels, total, to.kept + place.slice * channels);
  if (!to.epilogue.has_end()) return;
  if (to.slices > 1 && !is_last_block(to.tickets + to.slices * gridDim.x + blockIdx.x, to.slices)) return;
  to.epilogue.at_end(channel, kept, to.kept, Lanes{inside ? lane : channel::kNoLane, team});
}

}  // namespace
}  // namespace bnlab::kernels::cuda
