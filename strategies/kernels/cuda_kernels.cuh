// The two kernels behind every sweep: `apply` writes one number per element; `reduce` sums over a slice. Every block
// of it writes a float64 partial result, and the block that ends last of those that share a tile of channels merges
// them. All orders are fixed, so that results do not depend on which block that is.
#pragma once

#include "strategies/kernels/cuda_operations.cuh"

namespace bnlab::kernels::cuda {
namespace {

template <class Op, class T, bool kRows, int V>
__global__ void __launch_bounds__(kThreads) apply(const __grid_constant__ Cut cut, const Arguments<T> in) {
  const Op op(in, place_of<kRows, V>(cut));
  walk<kRows, V, 1>(cut, [&](int64_t i, int64_t, auto) { op(in, i); });
}

// Sums N values of every thread over the block, seen as rows of `width` threads (a power of two): every thread gets
// the sums of its column. values: shared memory, at least N rows of it.
template <int N>
__device__ void sum_over_block(double (*values)[kThreads], int width, double (&value)[N]) {
  const int t = thread_in_block();
  for (int k = 0; k < N; ++k) values[k][t] = value[k];
  __syncthreads();
  for (int n = kThreads, left; n > width; n = left) {
    left = n / 8 > width ? n / 8 : width;
    if (t < left) {
      for (int other = t + left; other < n; other += left) {
        for (int k = 0; k < N; ++k) values[k][t] += values[k][other];
      }
    }
    __syncthreads();
  }
  for (int k = 0; k < N; ++k) value[k] = values[k][t % width];
  __syncthreads();  // the next call writes
}

// A part of a slice, for N channels: how many elements each, and what Op keeps of them.
template <int N>
struct Part {
  double count = 0.0, first[N] = {}, second[N] = {};
};

// What all threads of a column (as above) contribute to N channels, merged. each(add) calls add(k, count, first,
// second) for every contribution of this thread to the k-th channel; it is called twice and the counts of all N
// channels are equal. The mean comes first, then the squares about it, with one division a channel:
//   m = sum n_i m_i / n, M2 = sum (M2_i + n_i (m_i - m)^2)
template <class Op, int N, class Each>
__device__ Part<N> merge_block(double (*values)[kThreads], int width, const Each& each) {
  Part<N> all;
  double sums[1 + N] = {};
  each([&](int k, double count, double first, double) {
    if (k == 0) sums[0] += count;
    sums[1 + k] += Op::kAboutMean ? count * first : first;
  });
  sum_over_block(values, width, sums);
  all.count = sums[0];
  const double divisor = Op::kAboutMean && sums[0] > 0.0 ? sums[0] : 1.0;
  for (int k = 0; k < N; ++k) all.first[k] = sums[1 + k] / divisor;
  each([&](int k, double count, double first, double second) {
    const double distance = first - all.first[k];
    all.second[k] += Op::kAboutMean ? second + count * (distance * distance) : second;
  });
  sum_over_block(values, width, all.second);
  return all;
}

// True in the one block that calls this last of `blocks` blocks with the same ticket, which is 0 before and after. It
// then sees what the others wrote.
__device__ inline bool is_last_block(unsigned* ticket, unsigned blocks) {
  __shared__ bool last;
  __syncthreads();
  if (thread_in_block() == 0) {
    __threadfence();  // what the block wrote is out before its ticket
    last = atomicInc(ticket, blocks - 1) == blocks - 1;
    __threadfence();
  }
  __syncthreads();
  return last;
}

// The parts p = `first`, first + step, ... of one channel, several loaded before the first is used. parts: the count
// of part 0; then its first and second, and the next part, `channels` and 3 channels away.
template <class Add>
__device__ void add_parts(const double* parts, int64_t channels, int64_t first, int64_t step,
                          const Add& add) {
  constexpr int kBatch = 8;
  for (int64_t p = first; p < gridDim.y; p += kBatch * step) {
    double loaded[kBatch][3];
    for (int k = 0; k < kBatch; ++k) {
      const double* part = parts + (p + k * step) * 3 * channels;
      for (int i = 0; i < 3; ++i) loaded[k][i] = p + k * step < gridDim.y ? part[i * channels] : 0.0;
    }
    for (int k = 0; k < kBatch; ++k) add(0, loaded[k][0], loaded[k][1], loaded[k][2]);
  }
}

// What the launches of one reduction share, however they are cut.
template <class Op>
struct Totals {
  double* parts;      // [slices, gridDim.y, 3, channels]: count, first and second
  unsigned* tickets;  // [slices + 1, gridDim.x]: of a slice's tiles; the last row of the tiles of all slices
  unsigned slices;
  typename Op::Result* out;
  typename Op::After after;
};

template <class Op, class T, bool kRows, int V>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    reduce(const __grid_constant__ Cut cut, const Arguments<T> in, const Totals<Op> to) {
  const Place place = place_of<kRows, V>(cut);
  const int64_t channels = cut.channels;
  const int t = thread_in_block();
  Op op(in, place);
  walk<kRows, V, Op::kBatch>(cut, [&](int64_t i, int64_t stride, auto batch) {
    typename Op::Loaded loaded[batch.value];
    for (int k = 0; k < batch.value; ++k) loaded[k] = Op::take(in, i + k * stride);
    for (int k = 0; k < batch.value; ++k) op.use(loaded[k]);
  });

  constexpr int N = kRows ? V : 1;
  __shared__ double values[1 + N][kThreads];
  const int columns = kRows ? static_cast<int>(blockDim.x) : 1;
  double first[V], second[V];
  for (int v = 0; v < V; ++v) first[v] = op.first(v);
  for (int v = 0; v < V; ++v) second[v] = op.second(v);
  const Part<N> part = merge_block<Op, N>(values, columns, [&](auto add) {
    for (int v = 0; v < V; ++v) add(kRows ? v : 0, static_cast<double>(op.count), first[v], second[v]);
  });
  double* parts = to.parts + place.slice * gridDim.y * 3 * channels;
  if (t < columns && place.inside) {
    double* own = parts + blockIdx.y * 3 * channels + place.channel;
    for (int k = 0; k < N; ++k) {
      own[k] = part.count;
      own[channels + k] = part.first[k];
      own[2 * channels + k] = part.second[k];
    }
  }

  if (!is_last_block(to.tickets + place.slice * gridDim.x + blockIdx.x, gridDim.y)) return;
  const int tile = columns * N;  // channels
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * tile + t % tile;
  const bool inside = channel < channels;
  const Part<1> whole = merge_block<Op, 1>(values, tile, [&](auto add) {
    if (inside) add_parts(parts + channel, channels, t / tile, kThreads / tile, add);
  });
  if (t < tile && inside) {
    Op::finish(to.out, place.slice, channel, channels, whole.count, whole.first[0], whole.second[0]);
  }

  if (!to.after.given || !is_last_block(to.tickets + to.slices * gridDim.x + blockIdx.x, to.slices)) return;
  if (t < tile && inside) to.after(channel);
}

}  // namespace
}  // namespace bnlab::kernels::cuda
