// The CUDA half of the sweeps, on the device. Two kernels stand behind every sweep: `apply` writes one number
// per element, and `reduce` sums over a slice. What they do with V neighbouring elements is an operation, a
// struct that is made once per thread with the values of the thread's channels and called at every place that
// the walk visits.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/walk.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int kBlocksPerProcessor = 4;  // at once: half of the threads that a processor holds

// The operations. Each says what it takes from memory at a place (Loaded), of which kBatch places are loaded
// before the first is used, and what it does with that: it gives what is written there, or keeps sums. Those
// that sum say where the total goes (write_total).

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

// The gradient that arrives, and where y is read, only what passes the activation.
template <class T, int V, bool kReadsY = true>
__device__ Pack<T, V> gradient(const Arguments<T>& in, int64_t i) {
  Pack<T, V> g = load<V>(in.dy + i);
  if (kReadsY && in.y != nullptr) {
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

// How many places a thread loads at once: what its registers hold beside the constants of its channels.
template <class T, int V>
constexpr int kPlaces = sizeof(T) * V < 16 ? 4
                        : sizeof(T) == 4   ? 2
                                           : 1;

template <class T, bool kRows, int V>
struct Normalise {
  using A = Compute<T>;
  struct Loaded {
    Pack<T, V> x, residual;
  };
  static constexpr int kBatch = kPlaces<T, V>;
  PerChannel<A, kRows, V> mean, scale, shift;
  __device__ Normalise(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place), scale(in.scale, place), shift(in.shift, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), in.residual == nullptr ? Pack<T, V>() : load<V>(in.residual + i)};
  }
  __device__ Pack<T, V> operator()(const Arguments<T>& in, const Loaded& at) const {
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) {
      A result = normalised(static_cast<A>(at.x.value[v]), mean[v], scale[v], shift[v]);
      if (in.residual != nullptr) result += static_cast<A>(at.residual.value[v]);
      y.value[v] = static_cast<T>(in.relu && result < 0 ? A(0) : result);  // NaN stays NaN
    }
    return y;
  }
};

template <class T, bool kRows, int V, bool kFromInput>
struct AnyInputGradient {
  using A = Compute<T>;
  struct Loaded {
    Pack<T, V> x, g;
  };
  static constexpr int kBatch = kPlaces<T, V>;
  PerChannel<A, kRows, V> mean, a, b, c;
  ReluMask<T, kRows, V, kFromInput> masked;
  __device__ AnyInputGradient(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place), a(in.a, place), b(in.b, place), c(in.c, place), masked(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V, !kFromInput>(in, i)};
  }
  __device__ Pack<T, V> operator()(const Arguments<T>&, const Loaded& at) const {
    Pack<T, V> dx;
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), d = x - mean[v];
      const A g = masked(v, x, mean[v], static_cast<A>(at.g.value[v]));
      dx.value[v] = static_cast<T>(a[v] * g + (b[v] * d + c[v]));
    }
    return dx;
  }
};
template <class T, bool kRows, int V>
using InputGradient = AnyInputGradient<T, kRows, V, false>;
template <class T, bool kRows, int V>
using InputGradientFromInput = AnyInputGradient<T, kRows, V, true>;

template <class T, bool kRows, int V>
struct ResidualGradient {
  using Loaded = Pack<T, V>;
  static constexpr int kBatch = 4;
  __device__ ResidualGradient(const Arguments<T>&, const Place&) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) { return gradient<T, V>(in, i); }
  __device__ Pack<T, V> operator()(const Arguments<T>&, const Loaded& g) const { return g; }
};

// What a thread, or a part of a slice, contributes to a channel: how many elements, and their two sums. Sums
// of d = x - pivot and d^2 are about a pivot of its own.
struct Summand {
  double count, pivot, first, second;
};

// Of a part, or of a slice: the two sums; or mean and M2, of those about a pivot.
struct Total {
  double count = 0.0, first = 0.0, second = 0.0;
};

// What the launch of a reduction does with a channel of a slice as soon as its total stands, and once the
// totals of all slices stand. `own`: the slice's parts, which are no longer needed; `parts`: those of all
// slices, `stride` apart.
template <class A>
struct MomentsEpilogue {
  bool given = false, updates = false;
  channel::Forward<A> forward{};
  channel::UpdateRunning<A> update{};
  __device__ void of_slice(int64_t slice, int64_t c, double* own) const {
    forward.of_set(slice, c);
    if (!updates) return;
    const auto pair = update.of_row(slice, c);
    own[1 + c] = static_cast<double>(pair.mean);
    own[1 + update.moments.channels + c] = static_cast<double>(pair.var);
  }
  __device__ bool has_end() const { return updates; }
  __device__ void at_end(int64_t c, const double* parts, int64_t stride) const {
    update.with(c, [&](int64_t i) {
      const double* own = parts + i * stride;
      return typename channel::UpdateRunning<A>::Pair{static_cast<A>(own[1 + c]),
                                                      static_cast<A>(own[1 + update.moments.channels + c])};
    });
  }
};

template <class A>
struct SumsEpilogue {
  bool given = false;
  channel::Backward<A> backward{};
  __device__ void of_slice(int64_t slice, int64_t c, double*) const { backward.of_set(slice, c); }
  __device__ bool has_end() const { return true; }
  __device__ void at_end(int64_t c, const double*, int64_t) const { backward.of_parameters(c); }
};

// Sums d = x - p and d^2 about p, the first element that the thread meets: M2 = sum d^2 - (sum d)^2 / n.
// Cancellation is bounded: where p lies far from the rest, p itself brings an M2 of that size.
template <class T, bool kRows, int V>
struct MomentsOperation {
  using A = Compute<T>;
  using Result = double;
  using Loaded = Pack<T, V>;
  using Epilogue = MomentsEpilogue<A>;
  static constexpr int kBatch = sizeof(T) * V == 8 ? 8 : 4;
  static constexpr bool kAboutPivot = true;  // first and second are sums of d and d^2
  A pivot[V] = {}, sum[V] = {}, square[V] = {};
  int count = 0;
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
  __device__ Summand summand(int v) const {
    return {static_cast<double>(count), static_cast<double>(pivot[v]), static_cast<double>(sum[v]),
            static_cast<double>(square[v])};
  }
  static __device__ void write_total(double* out, int64_t slice, int64_t channel, int64_t channels,
                                     const Total& total) {
    double* row = out + slice * (1 + 2 * channels);
    row[0] = total.count;  // the same for every channel: each tile of them finds its own
    row[1 + channel] = total.first;
    row[1 + channels + channel] = total.second;
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
  static constexpr bool kAboutPivot = false;
  PerChannel<A, kRows, V> mean;
  ReluMask<T, kRows, V, kFromInput> masked;
  A sum_g[V] = {}, sum_gx[V] = {};
  __device__ AnySums(const Arguments<T>& in, const Place& place) : mean(in.mean, place), masked(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V, !kFromInput>(in, i)};
  }
  __device__ void use(const Loaded& at) {
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), g = masked(v, x, mean[v], static_cast<A>(at.dy.value[v]));
      sum_g[v] += g;
      sum_gx[v] += g * (x - mean[v]);
    }
  }
  __device__ Summand summand(int v) const {
    return {0.0, 0.0, static_cast<double>(sum_g[v]), static_cast<double>(sum_gx[v])};
  }
  static __device__ void write_total(A* out, int64_t slice, int64_t channel, int64_t channels,
                                     const Total& total) {
    out[slice * 2 * channels + channel] = static_cast<A>(total.first);
    out[(slice * 2 + 1) * channels + channel] = static_cast<A>(total.second);
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
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    apply(const __grid_constant__ Cut cut, const Arguments<T> in) {
  const Op op(in, place_of<kRows, V>(cut));
  walk<kRows, V, Op::kBatch>(cut, [&](int64_t i, int64_t stride, auto n) {
    typename Op::Loaded loaded[n.value];
    for (int k = 0; k < n.value; ++k) loaded[k] = Op::take(in, i + k * stride);
    for (int k = 0; k < n.value; ++k) store(in.out + i + k * stride, op(in, loaded[k]));
  });
}

// Sums N values of every thread over the block, whose threads stand in rows of `width` (a power of two). The
// threads of the first row get the sums of their columns. values: shared memory, at least N rows of it.
template <int N>
__device__ void sum_over_block(double (*values)[kThreads], int width, double (&value)[N]) {
  const int t = thread_in_block();
  for (int k = 0; k < N; ++k) values[k][t] = value[k];
  __syncthreads();
  for (int n = kThreads, left; n > width; n = left) {
    left = n / 8 > width ? n / 8 : width;
    if (t < left) {
      for (int other = t + left; other < n; other += left)
        for (int k = 0; k < N; ++k) values[k][t] += values[k][other];
    }
    __syncthreads();
  }
  if (t < width)  // who writes these places next is who reads them here
    for (int k = 0; k < N; ++k) value[k] = values[k][t];
}

// Adds up what all threads of a column (as above) contribute to N channels; the threads of the first row get
// the totals. each(add) calls add(k, summand) for every contribution of this thread to the k-th channel; the
// counts are the same for all N. Sums about pivots p_i are first moved to the channel's p = pivot[k], so that
// only totals are divided. With d_i = p_i - p:
//   S = sum (S_i + n_i d_i), Q = sum (Q_i + d_i (2 S_i + n_i d_i)), mean = p + S / n, M2 = Q - S^2 / n
template <class Op, int N, class Each>
__device__ void merge_block(double (*values)[kThreads], int width, const double (&pivot)[N], const Each& each,
                            Total (&total)[N]) {
  double first[N + 1] = {}, second[N] = {};  // the last of the first ones counts
  each([&](int k, const Summand& from) {
    if constexpr (Op::kAboutPivot) {
      const double d = from.pivot - pivot[k], moved = from.first + from.count * d;
      if (k == 0) first[N] += from.count;
      first[k] += moved;
      second[k] += from.second + d * (from.first + moved);
    } else {
      first[k] += from.first;
      second[k] += from.second;
    }
  });
  sum_over_block(values, width, first);
  sum_over_block(values, width, second);
  if (thread_in_block() >= width) return;
  const double n = first[N];
  for (int k = 0; k < N; ++k) {
    if constexpr (Op::kAboutPivot) {
      const double distance = n > 0.0 ? first[k] / n : 0.0, m2 = second[k] - first[k] * distance;
      total[k] = {n, pivot[k] + distance, m2 < 0.0 ? 0.0 : m2};  // NaN stays NaN
    } else {
      total[k] = {n, first[k], second[k]};
    }
  }
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

// Calls add with the parts p = `first`, first + step, ... of one channel, and loads kBatch of them before it
// uses the first. `parts` points to part 0.
template <class Op, int kBatch, class Add>
__device__ void add_parts(const double* parts, int64_t channels, int64_t channel, int64_t first, int64_t step,
                          const Add& add) {
  const int64_t row = 1 + 2 * channels;
  for (int64_t p = first; p < gridDim.y; p += kBatch * step) {
    double loaded[kBatch][3];
    for (int k = 0; k < kBatch; ++k) {
      const double* part = parts + (p + k * step) * row;
      const bool inside = p + k * step < gridDim.y;
      loaded[k][0] = inside && Op::kAboutPivot ? part[0] : 0.0;
      loaded[k][1] = inside ? part[1 + channel] : 0.0;
      loaded[k][2] = inside ? part[1 + channels + channel] : 0.0;
    }
    for (int k = 0; k < kBatch; ++k) {
      const double count = loaded[k][0], value = loaded[k][1], second = loaded[k][2];
      add(0, Op::kAboutPivot ? Summand{count, value, 0.0, second} : Summand{0.0, 0.0, value, second});
    }
  }
}

// What the launches of one reduction have in common.
template <class Op>
struct Totals {
  double* parts;      // [slices, gridDim.y, 1 + 2 channels]: count, then first and second of all channels
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
  walk<kRows, V, Op::kBatch>(cut, [&](int64_t i, int64_t stride, auto n) {
    typename Op::Loaded loaded[n.value];
    for (int k = 0; k < n.value; ++k) loaded[k] = Op::take(in, i + k * stride);
    for (int k = 0; k < n.value; ++k) op.use(loaded[k]);
  });

  // The total of this block's part, about the pivots of its first row of threads: where there is an element
  // at all, these have met one.
  constexpr int N = kRows ? V : 1;
  __shared__ double values[N + 1][kThreads];
  const int columns = kRows ? static_cast<int>(blockDim.x) : 1;
  double pivot[N] = {};
  if constexpr (Op::kAboutPivot) {
    __shared__ double pivots[N][kThreads / N];
    if (t < columns)
      for (int k = 0; k < N; ++k) pivots[k][t] = op.summand(k).pivot;
    __syncthreads();
    for (int k = 0; k < N; ++k) pivot[k] = pivots[k][t % columns];
  }
  Total part[N];
  merge_block<Op, N>(
      values, columns, pivot,
      [&](auto add) {
        for (int v = 0; v < V; ++v) add(kRows ? v : 0, op.summand(v));
      },
      part);
  const int64_t of_slice = gridDim.y * (1 + 2 * channels);
  double* parts = to.parts + place.slice * of_slice;
  if (t < columns && place.inside) {
    double* own = parts + blockIdx.y * (1 + 2 * channels);
    if (t == 0) own[0] = part[0].count;  // each tile finds its own
    for (int k = 0; k < N; ++k) {
      own[1 + place.channel + k] = part[k].first;
      own[1 + channels + place.channel + k] = part[k].second;
    }
  }

  // The total of the slice, about the mean of its first part.
  if (!is_last_block(to.tickets + place.slice * gridDim.x + blockIdx.x, gridDim.y)) return;
  const int tile = columns * N;  // channels
  const int64_t channel = static_cast<int64_t>(blockIdx.x) * tile + t % tile;
  const bool inside = channel < channels;
  constexpr int kPartsAtOnce = !kRows ? 2 : sizeof(T) == 8 ? 4 : 8;  // planes: few for each of many threads
  const double first_mean[1] = {inside && Op::kAboutPivot ? parts[1 + channel] : 0.0};
  Total total[1];
  merge_block<Op, 1>(
      values, tile, first_mean,
      [&](auto add) {
        if (inside) add_parts<Op, kPartsAtOnce>(parts, channels, channel, t / tile, kThreads / tile, add);
      },
      total);
  const bool ends = t < tile && inside;
  if (ends) Op::write_total(to.out, place.slice, channel, channels, total[0]);
  if (!to.epilogue.given) return;
  if (ends) to.epilogue.of_slice(place.slice, channel, parts);
  if (!to.epilogue.has_end()) return;
  if (!is_last_block(to.tickets + to.slices * gridDim.x + blockIdx.x, to.slices)) return;
  if (ends) to.epilogue.at_end(channel, to.parts, of_slice);
}

}  // namespace
}  // namespace bnlab::kernels::cuda
