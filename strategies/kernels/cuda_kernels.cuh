// The three kernels behind every sweep: `apply` writes one number per element; a reduction has two stages, both
// in a fixed order and without atomics: every block of `reduce` writes float64 partial results, then `finish`
// merges them.
#pragma once

#include "strategies/kernels/cuda_operations.cuh"

namespace bnlab::kernels::cuda {
namespace {

template <class Op, class T, bool kRows, int V>
__global__ void __launch_bounds__(kThreads) apply(const __grid_constant__ Cut cut, const Arguments<T> in) {
  const Op op(in, place_of<kRows, V>(cut));
  walk<kRows, V>(cut, [&](int64_t i) { op(in, i); });
}

// Merges N pairs of every thread over the block's `height` rows of `width` threads (height a power of
// two, width * height = kThreads). The result is in the threads below `width`.
template <class Op, int N>
__device__ void merge_block(int width, double& count, double (&first)[N], double (&second)[N]) {
  __shared__ double counts[kThreads];
  __shared__ double firsts[N][kThreads];
  __shared__ double seconds[N][kThreads];
  const int t = thread_in_block();
  for (int threads = kThreads; threads > width; threads /= 2) {  // the upper half hands over to the lower
    const int half = threads / 2;
    if (t >= half && t < threads) {
      counts[t] = count;
      for (int k = 0; k < N; ++k) firsts[k][t] = first[k];
      for (int k = 0; k < N; ++k) seconds[k][t] = second[k];
    }
    __syncthreads();
    if (t < half) {
      const double other = counts[t + half];
      for (int k = 0; k < N; ++k) {
        Op::merge(count, other, first[k], second[k], firsts[k][t + half], seconds[k][t + half]);
      }
      count += other;
    }
    // The next round writes below `half`, where no thread reads any more; no second barrier is needed.
  }
}

// parts: [slices, gridDim.y, 1 + 2 channels], each row the count, then first and second of all channels.
template <class Op, class T, bool kRows, int V>
__global__ void __launch_bounds__(kThreads)
    reduce(const __grid_constant__ Cut cut, const Arguments<T> in, double* parts) {
  const Place place = place_of<kRows, V>(cut);
  Op op(in, place);
  walk<kRows, V>(cut, [&](int64_t i) { op(in, i); });
  double* part = parts + (place.slice * gridDim.y + blockIdx.y) * (1 + 2 * cut.channels);
  double count = static_cast<double>(op.count);
  if constexpr (kRows) {
    double first[V], second[V];
    for (int v = 0; v < V; ++v) first[v] = op.first(v);
    for (int v = 0; v < V; ++v) second[v] = op.second(v);
    merge_block<Op, V>(static_cast<int>(blockDim.x), count, first, second);
    if (threadIdx.y != 0 || !place.inside) return;
    if (place.channel == 0) part[0] = count;
    for (int v = 0; v < V; ++v) part[1 + place.channel + v] = first[v];
    for (int v = 0; v < V; ++v) part[1 + cut.channels + place.channel + v] = second[v];
  } else {
    double first[1] = {op.first(0)}, second[1] = {op.second(0)}, lanes = count;
    for (int v = 1; v < V; ++v) {
      Op::merge(lanes, count, first[0], second[0], op.first(v), op.second(v));
      lanes += count;
    }
    merge_block<Op, 1>(1, lanes, first, second);
    if (thread_in_block() != 0) return;
    if (place.channel == 0) part[0] = lanes;
    part[1 + place.channel] = first[0];
    part[1 + cut.channels + place.channel] = second[0];
  }
}

constexpr int kFinishWidth = 32;  // channels per block

template <class Op>
__global__ void __launch_bounds__(kThreads)
    finish(const double* parts, int64_t part_count, int64_t channels, typename Op::Result* out) {
  const int64_t tiles = (channels + kFinishWidth - 1) / kFinishWidth;
  const int64_t slice = blockIdx.x / tiles;
  const int64_t channel = blockIdx.x % tiles * kFinishWidth + threadIdx.x;
  double count = 0.0, first[1] = {0.0}, second[1] = {0.0};
  if (channel < channels) {
    for (int64_t p = threadIdx.y; p < part_count; p += blockDim.y) {
      const double* part = parts + (slice * part_count + p) * (1 + 2 * channels);
      Op::merge(count, part[0], first[0], second[0], part[1 + channel], part[1 + channels + channel]);
      count += part[0];
    }
  }
  merge_block<Op, 1>(kFinishWidth, count, first, second);
  if (threadIdx.y == 0 && channel < channels)
    Op::finish(out, slice, channel, channels, count, first[0], second[0]);
}

}  // namespace
}  // namespace bnlab::kernels::cuda
