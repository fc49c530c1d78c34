// The CUDA half of the sweeps, on the device. Two kernels stand behind every sweep: `apply` writes one number
// per element, and `reduce` sums over a slice. What they do with V neighbouring elements is an operation, a
// struct that is made once per thread with the values of the thread's channels and called at every place that
// the walk visits.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/launch.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int kThreads = kBlockThreads;
constexpr int kBlocksPerProcessor = 4;  // at once, of the kernels that sum
constexpr int kMaxSlices = 256;         // in one launch

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

template <int V, class T>
__device__ Pack<T, V> load(const T* p) {
  return *reinterpret_cast<const Pack<T, V>*>(p);
}

template <class T, int V>
__device__ void store(T* p, const Pack<T, V>& pack) {
  if constexpr (sizeof(pack) == sizeof(int4)) {  // nvcc splits a plain assignment in unrolled loops
    int4 bits;
    memcpy(&bits, &pack, sizeof bits);
    __stwb(reinterpret_cast<int4*>(p), bits);
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
  Place place;
  place.inside = channel < cut.channels;
  place.slice = cut.first_slice + blockIdx.z;
  place.channel = place.inside ? channel : 0;
  place.channels = cut.channels;
  return place;
}

// Calls f(i, stride, n) for the places that fall to this thread, n of them at a time: i is the first of the V
// neighbouring elements of the first place, and the places lie `stride` apart. n is an integral_constant,
// kBatch, or 1 at the end.
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

// The operations. The two that sum keep their sums, load several places before they use the first (kBatch),
// and say where the total goes (write_total).

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

// What one kernel call reads and writes; unused pointers are null.
template <class T>
struct Arguments {
  using Element = T;
  using A = Compute<T>;
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* y = nullptr;  // a mask: the gradient passes where y > 0
  const T* residual = nullptr;
  T* out = nullptr;
  const A* mean = nullptr;                     // [slices, channels], like the following
  const A *scale = nullptr, *shift = nullptr;  // backward: where the mask is made from x
  const A *a = nullptr, *b = nullptr, *c = nullptr;
  bool relu = false;
};

// The values of a thread's channels: one for each of its V neighbours in rows, one for all in planes.
template <class A, bool kRows, int V>
struct PerChannel {
  A value[kRows ? V : 1];
  __device__ PerChannel(const A* values, const Place& place) {
    for (int v = 0; v < (kRows ? V : 1); ++v)
      value[v] = values[place.slice * place.channels + place.channel + v];
  }
  __device__ A operator[](int v) const { return value[kRows ? v : 0]; }
};

template <class T, int V>
__device__ Pack<T, V> gradient(const Arguments<T>& in, int64_t i) {
  Pack<T, V> g = load<V>(in.dy + i);
  if (in.y != nullptr) {
    const Pack<T, V> y = load<V>(in.y + i);
    for (int v = 0; v < V; ++v) g.value[v] = static_cast<Compute<T>>(y.value[v]) > 0 ? g.value[v] : T(0);
  }
  return g;
}

// One product and one sum, rounded once, so that a mask made from x agrees with the y that was written.
template <class A>
__device__ A normalised(A x, A mean, A scale, A shift) {
  return std::fma(x - mean, scale, shift);
}

// Which gradients pass the activation where reading y has not decided it: all, or those with a positive y
// computed from x.
template <class T, bool kRows, int V, bool kFromInput>
struct ReluMask {
  using A = Compute<T>;
  __device__ ReluMask(const Arguments<T>&, const Place&) {}
  __device__ A operator()(int, A, A, A g) const { return g; }
};
template <class T, bool kRows, int V>
struct ReluMask<T, kRows, V, true> {
  using A = Compute<T>;
  PerChannel<A, kRows, V> scale, shift;
  __device__ ReluMask(const Arguments<T>& in, const Place& place)
      : scale(in.scale, place), shift(in.shift, place) {}
  __device__ A operator()(int v, A x, A mean, A g) const {
    return normalised(x, mean, scale[v], shift[v]) > 0 ? g : A(0);
  }
};

template <class T, bool kRows, int V>
struct Normalise {
  using A = Compute<T>;
  PerChannel<A, kRows, V> mean, scale, shift;
  __device__ Normalise(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place), scale(in.scale, place), shift(in.shift, place) {}
  __device__ void operator()(const Arguments<T>& in, int64_t i) const {
    const Pack<T, V> x = load<V>(in.x + i);
    A result[V];
    for (int v = 0; v < V; ++v)
      result[v] = normalised(static_cast<A>(x.value[v]), mean[v], scale[v], shift[v]);
    if (in.residual != nullptr) {
      const Pack<T, V> residual = load<V>(in.residual + i);
      for (int v = 0; v < V; ++v) result[v] += static_cast<A>(residual.value[v]);
    }
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) {
      y.value[v] = static_cast<T>(in.relu && result[v] < 0 ? A(0) : result[v]);  // NaN stays NaN
    }
    store(in.out + i, y);
  }
};

template <class T, bool kRows, int V, bool kFromInput>
struct AnyInputGradient {
  using A = Compute<T>;
  PerChannel<A, kRows, V> mean, a, b, c;
  ReluMask<T, kRows, V, kFromInput> masked;
  __device__ AnyInputGradient(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place), a(in.a, place), b(in.b, place), c(in.c, place), masked(in, place) {}
  __device__ void operator()(const Arguments<T>& in, int64_t i) const {
    const Pack<T, V> x = load<V>(in.x + i), g = gradient<T, V>(in, i);
    Pack<T, V> dx;
    for (int v = 0; v < V; ++v) {
      const A value = static_cast<A>(x.value[v]), d = value - mean[v];
      const A passed = masked(v, value, mean[v], static_cast<A>(g.value[v]));
      dx.value[v] = static_cast<T>(a[v] * passed + (b[v] * d + c[v]));
    }
    store(in.out + i, dx);
  }
};
template <class T, bool kRows, int V>
using InputGradient = AnyInputGradient<T, kRows, V, false>;
template <class T, bool kRows, int V>
using InputGradientFromInput = AnyInputGradient<T, kRows, V, true>;

template <class T, bool kRows, int V>
struct ResidualGradient {
  __device__ ResidualGradient(const Arguments<T>&, const Place&) {}
  __device__ void operator()(const Arguments<T>& in, int64_t i) const {
    store(in.out + i, gradient<T, V>(in, i));
  }
};

// What the launch of a reduction does with a channel once the totals of all slices stand.
template <class A>
struct MomentsEpilogue {
  bool given = false, updates = false;
  channel::Forward<A> forward{};
  channel::UpdateRunning<A> update{};
  __device__ void operator()(int64_t c) const {
    forward(c);
    if (updates) update(c);
  }
};

template <class A>
struct SumsEpilogue {
  bool given = false;
  channel::Backward<A> backward{};
  __device__ void operator()(int64_t c) const { backward(c); }
};

// Sums d = x - p and d^2 about p, the first element that the thread meets: M2 = sum d^2 - (sum d)^2 / n.
// Cancellation is bounded: where p lies far from the rest, p itself brings an M2 of that size.
template <class T, bool kRows, int V>
struct MomentsOperation {
  using A = Compute<T>;
  using Result = double;
  using Loaded = Pack<T, V>;
  using Epilogue = MomentsEpilogue<A>;
  static constexpr int kBatch = 4;
  static constexpr bool kAboutMean = true;  // first and second are a mean and a sum of squares about it
  A pivot[V] = {}, sum[V] = {}, square[V] = {};
  int64_t count = 0;
  __device__ MomentsOperation(const Arguments<T>&, const Place&) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) { return load<V>(in.x + i); }
  __device__ void use(const Loaded& x) {
    for (int v = 0; v < V; ++v) {
      const A value = static_cast<A>(x.value[v]);
      if (count == 0) pivot[v] = value;
      const A d = value - pivot[v];
      sum[v] += d;
      square[v] += d * d;
    }
    ++count;
  }
  __device__ double first(int v) const {
    return count == 0
               ? 0.0
               : static_cast<double>(pivot[v]) + static_cast<double>(sum[v]) / static_cast<double>(count);
  }
  __device__ double second(int v) const {
    if (count == 0) return 0.0;
    const double rest = static_cast<double>(sum[v]);
    const double m2 = static_cast<double>(square[v]) - rest * rest / static_cast<double>(count);
    return m2 < 0.0 ? 0.0 : m2;  // NaN stays NaN
  }
  static __device__ void write_total(double* out, int64_t slice, int64_t channel, int64_t channels,
                                     double count, double mean, double m2) {
    double* row = out + slice * (1 + 2 * channels);
    row[0] = count;  // the same for every channel: each tile of them finds its own
    row[1 + channel] = mean;
    row[1 + channels + channel] = m2;
  }
};

template <class T, bool kRows, int V, bool kFromInput>
struct AnySums {
  using A = Compute<T>;
  using Result = A;
  struct Loaded {
    Pack<T, V> x, dy;
  };
  using Epilogue = SumsEpilogue<A>;
  static constexpr int kBatch = 2;
  static constexpr bool kAboutMean = false;
  PerChannel<A, kRows, V> mean;
  ReluMask<T, kRows, V, kFromInput> masked;
  A sum_g[V] = {}, sum_gx[V] = {};
  int64_t count = 0;
  __device__ AnySums(const Arguments<T>& in, const Place& place) : mean(in.mean, place), masked(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V>(in, i)};
  }
  __device__ void use(const Loaded& at) {
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), g = masked(v, x, mean[v], static_cast<A>(at.dy.value[v]));
      sum_g[v] += g;
      sum_gx[v] += g * (x - mean[v]);
    }
    ++count;
  }
  __device__ double first(int v) const { return static_cast<double>(sum_g[v]); }
  __device__ double second(int v) const { return static_cast<double>(sum_gx[v]); }
  static __device__ void write_total(A* out, int64_t slice, int64_t channel, int64_t channels, double,
                                     double sum_g, double sum_gx) {
    out[slice * 2 * channels + channel] = static_cast<A>(sum_g);
    out[(slice * 2 + 1) * channels + channel] = static_cast<A>(sum_gx);
  }
};
template <class T, bool kRows, int V>
using Sums = AnySums<T, kRows, V, false>;
template <class T, bool kRows, int V>
using SumsFromInput = AnySums<T, kRows, V, true>;

// The kernels. Every block of `reduce` writes a float64 partial result, and the block that ends last of those
// that share a tile of channels merges them. All orders are fixed, so that results do not depend on which
// block that is.

template <class Op, class T, bool kRows, int V>
__global__ void __launch_bounds__(kThreads) apply(const __grid_constant__ Cut cut, const Arguments<T> in) {
  const Op op(in, place_of<kRows, V>(cut));
  walk<kRows, V, 1>(cut, [&](int64_t i, int64_t, auto) { op(in, i); });
}

// Sums N values of every thread over the block, whose threads stand in rows of `width` (a power of two).
// Every thread gets the sums of its column. values: shared memory, at least N rows of it.
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

// Merges what all threads of a column (as above) contribute to N channels. each(add) calls add(k, count,
// first, second) for every contribution of this thread to the k-th channel. It is called twice, and the
// counts of all N channels are equal. The mean is taken first, then the squares about it, with one division a
// channel:
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

// True in the one block that calls this last of `blocks` blocks with the same ticket, which is 0 before and
// after. It then sees what the others wrote.
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

// Calls add with the parts p = `first`, first + step, ... of one channel, and loads several before it uses
// the first. `parts` points to the count of part 0; its first and second lie `channels` further on each, then
// comes part 1.
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

// What the launches of one reduction have in common.
template <class Op>
struct Totals {
  double* parts;      // [slices, gridDim.y, 3, channels]: count, first and second
  unsigned* tickets;  // [slices + 1, gridDim.x]: a row for the tiles of each slice, the last for all slices
  unsigned slices;
  typename Op::Result* out;
  typename Op::Epilogue epilogue;
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
    Op::write_total(to.out, place.slice, channel, channels, whole.count, whole.first[0], whole.second[0]);
  }

  if (!to.epilogue.given || !is_last_block(to.tickets + to.slices * gridDim.x + blockIdx.x, to.slices))
    return;
  if (t < tile && inside) to.epilogue(channel);
}

}  // namespace
}  // namespace bnlab::kernels::cuda
