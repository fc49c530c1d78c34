// The CUDA half of the sweeps, on the device. Two kernels stand behind every sweep: `apply` writes one
// number per element, and `reduce` (reduce.cuh) sums over a slice. What they do with V neighbouring
// elements is an operation, a struct that is made once per thread with the values of the thread's channels
// and called at every place that the walk visits.
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
constexpr int kMaxTile = 64;            // channels of a block that sums by rows

// The operations. Each says what it takes from memory at a place (Loaded), of which kBatch places are loaded
// before the first is used, and what it does with that: it gives what is written there, or keeps sums. Those
// that sum say how sums merge, within a block (Sums), between its parts (Part) and in the end (write_total).

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
constexpr int kPlaces = V == 1 && sizeof(T) < 8 ? 8
                        : sizeof(T) * V < 16    ? 4
                        : sizeof(T) == 4        ? 2
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
  // Fewer, since it has more constants than others, or more places at once.
  static constexpr int kBatch = kRows || V == 1 ? (kPlaces<T, V> + 2) / 2 : kPlaces<T, V>;
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

// Of a slice: mean and M2, or the two sums.
struct Total {
  double count, first, second;
};

// What the launch of a reduction does with a channel of a slice as soon as its total stands, and once the
// totals of all slices stand. `own`: what a slice of several leaves for the end, per channel; `all`: that of
// all slices, one after the other; `only`: that of the only one.
template <class A>
struct MomentsEpilogue {
  bool given = false, updates = false;
  channel::Forward<A> forward{};
  channel::UpdateRunning<A> update{};
  using Kept = typename channel::UpdateRunning<A>::Pair;
  __device__ Kept of_slice(int64_t slice, int64_t c, const Total& total, Kept* own) const {
    Kept kept{};
    if (updates) kept = update.of_moments(total.count, total.first, total.second);
    if (updates && update.rows > 1) own[c] = kept;
    forward.of_set(slice, c, total.count, total.first, total.second);
    return kept;
  }
  __device__ bool has_end() const { return updates; }
  __device__ void at_end(int64_t c, const Kept& only, const Kept* all) const {
    update.with(c, [&](int64_t i) { return update.rows == 1 ? only : all[i * update.moments.channels + c]; });
  }
};

template <class A>
struct SumsEpilogue {
  bool given = false;
  channel::Backward<A> backward{};
  struct Kept {};
  __device__ Kept of_slice(int64_t slice, int64_t c, const Total& total, Kept*) const {
    const bool through = backward.group_sums != nullptr;  // they are the local ones
    backward.write(slice, c, through ? static_cast<A>(total.first) : A(0),
                   through ? static_cast<A>(total.second) : A(0));
    return {};
  }
  __device__ bool has_end() const { return true; }
  __device__ void at_end(int64_t c, const Kept&, const Kept*) const { backward.of_parameters(c); }
};

// Within two units in the last place, and short.
__device__ inline float ratio(float a, float b) {
  return __fdividef(a, b);
}
__device__ inline double ratio(double a, double b) {
  return a / b;
}

// Moments of N channels. A mean is the sum of `pivot` and the small `mean`, so that it keeps its digits far
// from zero, and where one outlier was the first pivot.
template <class A, int N>
struct Moments {
  A count, mean[N], m2[N], pivot[N];

  __device__ void split(int k) {
    const A all = pivot[k] + mean[k];
    if (all - all != 0) return;  // infinite, or not a number
    mean[k] += pivot[k] - all;
    pivot[k] = all;
  }

  // Chan et al. 1979. What is merged into must not be empty, unless the other is.
  __device__ void merge(const Moments& other) {
    const A all = count + other.count, share = all > 0 ? ratio(other.count, all) : A(0);
    for (int k = 0; k < N; ++k) {
      const A d = (other.pivot[k] - pivot[k]) + (other.mean[k] - mean[k]);
      mean[k] += d * share;
      m2[k] += other.m2[k] + d * (d * (count * share));  // 0 of an empty one, however large d is
      split(k);
    }
    count = all;
  }
  __device__ Moments<A, 1> of(int k) const { return {count, {mean[k]}, {m2[k]}, {pivot[k]}}; }
};

template <class A>
struct alignas(4 * sizeof(A)) MomentsPart {
  double mean;
  A m2, count;
};

// Of the parts that a thread meets, about the mean of the first of all: S = sum n d, Q = sum (M2 + n d^2).
struct MomentsMerge {
  double sum = 0.0, square = 0.0;
  template <class A, int kParts>
  __device__ void add(const MomentsPart<A> (&parts)[kParts], double base) {
    A first = 0, second = 0;
    for (const MomentsPart<A>& part : parts) {
      const A d = static_cast<A>(part.mean - base), moved = part.count * d;
      first += moved;
      second += part.m2 + moved * d;
    }
    sum += static_cast<double>(first);
    square += static_cast<double>(second);
  }
  __device__ void merge(const MomentsMerge& other) {
    sum += other.sum;
    square += other.square;
  }
  __device__ Total total(int64_t n, double base) const {
    const double distance = channel::quotient(sum, static_cast<double>(n > 0 ? n : 1)),
                 m2 = square - sum * distance;
    return {static_cast<double>(n), base + distance, m2 < 0.0 ? 0.0 : m2};
  }
};

// Sums d = x - p and d^2 about p, the first element that the thread meets: M2 = sum d^2 - (sum d)^2 / n.
// Cancellation is bounded: where p lies far from the rest, p itself brings an M2 of that size.
template <class T, bool kRows, int V>
struct MomentsOperation {
  using A = Compute<T>;
  using Result = double;
  using Loaded = Pack<T, V>;
  using Epilogue = MomentsEpilogue<A>;
  using Part = MomentsPart<A>;
  using Merge = MomentsMerge;
  static constexpr int N = kRows ? V : 1;
  static constexpr int kBatch = V == 1 ? 8 : sizeof(T) * V == 8 ? 8 : 4;
  A pivot[N] = {}, sum[V] = {}, square[V] = {};
  int count = 0;
  __device__ MomentsOperation(const Arguments<T>&, const Place&) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) { return load<V>(in.x + i); }
  __device__ void begin(const Loaded& x) {
    if (count > 0) return;
    for (int k = 0; k < N; ++k) pivot[k] = static_cast<A>(x.value[k]);
  }
  __device__ void use(const Loaded& x, bool inside) {
    for (int v = 0; v < V; ++v) {
      const A d = inside ? static_cast<A>(x.value[v]) - pivot[kRows ? v : 0] : A(0);
      sum[v] += d;
      square[v] += d * d;
    }
    count += inside;
  }
  __device__ Moments<A, N> sums() const {
    Moments<A, N> all{static_cast<A>(count * (V / N)), {}, {}, {}};
    const A share = count > 0 ? ratio(A(1), all.count) : A(0);
    for (int k = 0; k < N; ++k) {
      A first = sum[k], second = square[k];
      for (int v = k + N; v < V; v += N) {
        first += sum[v];
        second += square[v];
      }
      all.mean[k] = first * share;
      all.m2[k] = second - all.mean[k] * (2 * first - all.count * all.mean[k]);  // whatever the mean has lost
      all.pivot[k] = pivot[k];
      all.split(k);
    }
    return all;
  }
  static __device__ Part part(const Moments<A, 1>& of) {
    const A m2 = of.m2[0] < 0 ? A(0) : of.m2[0];  // NaN stays NaN, likewise below
    return {static_cast<double>(of.pivot[0]) + static_cast<double>(of.mean[0]), m2, of.count};
  }
  static __device__ double base(const Part& first) { return first.mean; }
  static __device__ Total total(const Part& alone, int64_t n) {
    return {static_cast<double>(n), alone.mean, static_cast<double>(alone.m2)};
  }
  static __device__ void write_total(double* out, int64_t slice, int64_t channel, int64_t channels,
                                     const Total& total) {
    double* row = out + slice * (1 + 2 * channels);
    if (channel == 0) row[0] = total.count;
    row[1 + channel] = total.first;
    row[1 + channels + channel] = total.second;
  }
};

// Two sums of each of N channels.
template <class A, int N>
struct PairsOfSums {
  A first[N], second[N];

  __device__ void merge(const PairsOfSums& other) {
    for (int k = 0; k < N; ++k) {
      first[k] += other.first[k];
      second[k] += other.second[k];
    }
  }
  __device__ PairsOfSums<A, 1> of(int k) const { return {{first[k]}, {second[k]}}; }
};

template <class A>
struct alignas(2 * sizeof(A)) SumsPart {
  A first, second;
};

struct SumsMerge {
  double first = 0.0, second = 0.0;
  template <class A, int kParts>
  __device__ void add(const SumsPart<A> (&parts)[kParts], double) {
    for (const SumsPart<A>& part : parts) {
      first += static_cast<double>(part.first);
      second += static_cast<double>(part.second);
    }
  }
  __device__ void merge(const SumsMerge& other) {
    first += other.first;
    second += other.second;
  }
  __device__ Total total(int64_t n, double) const { return {static_cast<double>(n), first, second}; }
};

template <class T, bool kRows, int V, bool kFromInput>
struct AnySums {
  using A = Compute<T>;
  using Result = A;
  struct Loaded {
    Pack<T, V> x, dy;
  };
  using Epilogue = SumsEpilogue<A>;
  using Part = SumsPart<A>;
  using Merge = SumsMerge;
  static constexpr int N = kRows ? V : 1;
  static constexpr int kBatch = V == 1 && sizeof(T) < 8 ? 8 : sizeof(T) * V > 8 ? 2 : kFromInput ? 4 : 3;
  PerChannel<A, kRows, V> mean;
  ReluMask<T, kRows, V, kFromInput> masked;
  A sum_g[V] = {}, sum_gx[V] = {};
  __device__ AnySums(const Arguments<T>& in, const Place& place) : mean(in.mean, place), masked(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V, !kFromInput>(in, i)};
  }
  __device__ void begin(const Loaded&) {}
  __device__ void use(const Loaded& at, bool) {  // dy is 0 where there is no place
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), g = masked(v, x, mean[v], static_cast<A>(at.dy.value[v]));
      sum_g[v] += g;
      sum_gx[v] += g * (x - mean[v]);
    }
  }
  __device__ PairsOfSums<A, N> sums() const {
    PairsOfSums<A, N> all{};
    for (int v = 0; v < V; ++v) {
      all.first[v % N] += sum_g[v];
      all.second[v % N] += sum_gx[v];
    }
    return all;
  }
  static __device__ Part part(const PairsOfSums<A, 1>& of) { return {of.first[0], of.second[0]}; }
  static __device__ double base(const Part&) { return 0.0; }
  static __device__ Total total(const Part& alone, int64_t n) {
    return {static_cast<double>(n), static_cast<double>(alone.first), static_cast<double>(alone.second)};
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

template <class Op, class T, bool kRows, int V>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    apply(const __grid_constant__ Cut cut, const Arguments<T> in) {
  const Place place = place_of<kRows, V>(cut);
  const Op op(in, place);
  walk<kRows, V, Op::kBatch>(cut, place, [&](const int64_t(&at)[Op::kBatch], auto count) {
    typename Op::Loaded loaded[Op::kBatch] = {};
    for (int k = 0; k < Op::kBatch; ++k)
      if (k < count) loaded[k] = Op::take(in, at[k]);
    for (int k = 0; k < Op::kBatch; ++k)
      if (k < count) store(in.out + at[k], op(in, loaded[k]));
  });
}

}  // namespace
}  // namespace bnlab::kernels::cuda
