// The CUDA half of the sweeps, on the device. Two kernels stand behind every sweep: `apply` writes, and
// `reduce` (reduce.cuh) sums over a slice. What they do with V neighbouring elements is an operation, a
// struct that is made once per thread with the values of the thread's channels and called at every place that
// the walk visits.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/walk.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int kBlocksPerProcessor = 4;  // at once: half of the threads that a processor holds
constexpr int kMaxTile = 64;            // channels of a block that sums by rows

template <class T>
using Compute = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The operations. Each says what it takes from memory at a place (Loaded), of which kBatch places are loaded
// before the first is used, and what it does with that: it writes there, or keeps sums. Those that sum say
// how sums merge, within a block (`sums`) and between its parts (Part), and their Epilogue writes the totals.
template <class T_, bool kRows_, int V_>
struct Operation {
  using T = T_;
  static constexpr bool kRows = kRows_;
  static constexpr int V = V_;
  static constexpr int N = kRows ? V : 1;  // channels of a thread
};

// What one kernel call reads and writes; unused pointers are null.
template <class T>
struct Arguments {
  using Element = T;
  using A = Compute<T>;
  const T* x = nullptr;
  const T* dy = nullptr;
  const T* y = nullptr;  // a mask: the gradient passes where y > 0
  const T* residual = nullptr;
  T *out = nullptr, *dresidual = nullptr;
  const A* mean = nullptr;                     // [slices, channels], like the following
  const A *scale = nullptr, *shift = nullptr;  // backward: where the mask is made from x
  const A *a = nullptr, *b = nullptr, *c = nullptr;
  const A *tau = nullptr, *alpha = nullptr;  // [channels] of response.cu, [1] of squash.cu
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
  // Of a parameter, or `otherwise` where there is none.
  __device__ PerChannel(const A* values, const Place& place, A otherwise) {
    for (int v = 0; v < (kRows ? V : 1); ++v)
      value[v] = values == nullptr ? otherwise : values[place.channel + v];
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

// What the layers of response.cu and squash.cu load: 64 bytes at once, of as many tensors as they read.
template <class T, int V, bool kBackward, bool kAdds>
struct LayerPlaces {
  struct Loaded {
    Pack<T, V> x, dy, residual;
  };
  static constexpr int kBatch =
      std::clamp(64 / (static_cast<int>(sizeof(T)) * V * (1 + kBackward + kAdds)), 1, 4);
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    Loaded loaded{};
    loaded.x = load<V>(in.x + i);
    if constexpr (kBackward) loaded.dy = load<V>(in.dy + i);
    if constexpr (kAdds) loaded.residual = load<V>(in.residual + i);
    return loaded;
  }
};

template <class T, bool kRows, int V>
struct Normalise : Operation<T, kRows, V> {
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
  __device__ void write(const Arguments<T>& in, int64_t i, const Loaded& at) const {
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) {
      A result = normalised(static_cast<A>(at.x.value[v]), mean[v], scale[v], shift[v]);
      if (in.residual != nullptr) result += static_cast<A>(at.residual.value[v]);
      y.value[v] = static_cast<T>(in.relu && result < 0 ? A(0) : result);  // NaN stays NaN
    }
    store(in.out + i, y);
  }
};

template <class T, bool kRows, int V, bool kFromInput>
struct InputGradient : Operation<T, kRows, V> {
  using A = Compute<T>;
  struct Loaded {
    Pack<T, V> x, g;
  };
  // Fewer, since it has more constants than others, or more places at once.
  static constexpr int kBatch = kRows || V == 1 ? (kPlaces<T, V> + 2) / 2 : kPlaces<T, V>;
  PerChannel<A, kRows, V> mean, a, b, c;
  ReluMask<T, kRows, V, kFromInput> masked;
  __device__ InputGradient(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place), a(in.a, place), b(in.b, place), c(in.c, place), masked(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V, !kFromInput>(in, i)};
  }
  __device__ void write(const Arguments<T>& in, int64_t i, const Loaded& at) const {
    Pack<T, V> dx;
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), d = x - mean[v];
      const A g = masked(v, x, mean[v], static_cast<A>(at.g.value[v]));
      dx.value[v] = static_cast<T>(a[v] * g + (b[v] * d + c[v]));
    }
    store(in.out + i, dx);
  }
};

template <class T, bool kRows, int V>
struct ResidualGradient : Operation<T, kRows, V> {
  using Loaded = Pack<T, V>;
  static constexpr int kBatch = 4;
  __device__ ResidualGradient(const Arguments<T>&, const Place&) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) { return gradient<T, V>(in, i); }
  __device__ void write(const Arguments<T>& in, int64_t i, const Loaded& g) const { store(in.out + i, g); }
};

// Of a channel of a slice.
struct MomentsTotal {
  double count, mean, m2;
};
template <int kSums>
struct SumsTotal {
  double sum[kSums];
  template <class A>
  __device__ void write(A* out, int64_t slice, int64_t c, int64_t channels) const {
    for (int k = 0; k < kSums; ++k) out[(slice * kSums + k) * channels + c] = static_cast<A>(sum[k]);
  }
};

// What the launch of a reduction does with a channel of a slice as soon as its total stands, and once the
// totals of all slices stand, by the threads that share the channel (channel.hpp). `own`: what a slice of
// several leaves for the end, per channel; `all`: that of all slices, one after the other; `only`: that of
// the only one.
template <class A>
struct MomentsEpilogue {
  double* rows = nullptr;  // packed
  bool steps = false, updates = false;
  channel::Forward<A> forward{};
  channel::UpdateRunning<A> update{};
  using Kept = typename channel::UpdateRunning<A>::Pair;
  __device__ Kept of_slice(int64_t slice, int64_t c, int64_t channels, const MomentsTotal& total,
                           Kept* own) const {
    double* row = rows + slice * (1 + 2 * channels);
    if (c == 0) row[0] = total.count;
    row[1 + c] = total.mean;
    row[1 + channels + c] = total.m2;
    Kept kept{};
    if (!steps) return kept;
    if (updates) kept = update.of_moments(total.count, total.mean, total.m2);
    if (updates && update.rows > 1) own[c] = kept;
    forward.of_set(slice, c, total.count, total.mean, total.m2);
    return kept;
  }
  __device__ bool has_end() const { return updates; }
  template <class Lanes>
  __device__ void at_end(int64_t c, const Kept& only, const Kept* all, const Lanes& team) const {
    if (team.lane() != 0) return;
    update.with(c, [&](int64_t i) { return update.rows == 1 ? only : all[i * update.moments.channels + c]; });
  }
};

// Of one that waits for no other slice.
struct NoEnd {
  struct Kept {};
  __device__ bool has_end() const { return false; }
  template <class Lanes>
  __device__ void at_end(int64_t, const Kept&, const Kept*, const Lanes&) const {}
};

template <class A>
struct SumsEpilogue {
  A* sums = nullptr;  // [slices, 2, channels]
  bool steps = false;
  channel::Backward<A> backward{};
  struct Kept {};
  __device__ Kept of_slice(int64_t slice, int64_t c, int64_t channels, const SumsTotal<2>& total,
                           Kept*) const {
    total.write(sums, slice, c, channels);
    const bool through = steps && backward.group_sums != nullptr;  // they are the local ones
    if (steps)
      backward.write(slice, c, through ? static_cast<A>(total.sum[0]) : A(0),
                     through ? static_cast<A>(total.sum[1]) : A(0));
    return {};
  }
  __device__ bool has_end() const { return steps; }
  template <class Lanes>
  __device__ void at_end(int64_t c, const Kept&, const Kept*, const Lanes& team) const {
    if (team.lane() == 0) backward.of_parameters(c);
  }
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
  __device__ MomentsTotal total(int64_t n, double base) const {
    const double distance = channel::quotient(sum, static_cast<double>(n > 0 ? n : 1)),
                 m2 = square - sum * distance;
    return {static_cast<double>(n), base + distance, m2 < 0.0 ? 0.0 : m2};
  }
};

// Sums d = x - p and d^2 about p, the first element that the thread meets: M2 = sum d^2 - (sum d)^2 / n.
// Cancellation is bounded: where p lies far from the rest, p itself brings an M2 of that size.
template <class T, bool kRows, int V>
struct MomentsOperation : Operation<T, kRows, V> {
  using A = Compute<T>;
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
  __device__ void use(const Arguments<T>&, int64_t, const Loaded& x, bool inside) {
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
  static __device__ MomentsTotal total(const Part& alone, int64_t n) {
    return {static_cast<double>(n), alone.mean, static_cast<double>(alone.m2)};
  }
};

// Sums of each of N channels.
template <class A, int kSums, int N>
struct Sums {
  A sum[kSums][N];

  __device__ void merge(const Sums& other) {
    for (int s = 0; s < kSums; ++s)
      for (int k = 0; k < N; ++k) sum[s][k] += other.sum[s][k];
  }
  __device__ Sums<A, kSums, 1> of(int k) const {
    Sums<A, kSums, 1> one;
    for (int s = 0; s < kSums; ++s) one.sum[s][0] = sum[s][k];
    return one;
  }
};

template <class A, int kSums>
struct alignas((kSums > 2 ? 4 : 2) * sizeof(A)) SumsPart {
  A sum[kSums];
};

template <int kSums>
struct SumsMerge {
  double sum[kSums] = {};
  template <class A, int kParts>
  __device__ void add(const SumsPart<A, kSums> (&parts)[kParts], double) {
    for (const SumsPart<A, kSums>& part : parts)
      for (int s = 0; s < kSums; ++s) sum[s] += static_cast<double>(part.sum[s]);
  }
  __device__ void merge(const SumsMerge& other) {
    for (int s = 0; s < kSums; ++s) sum[s] += other.sum[s];
  }
  __device__ SumsTotal<kSums> total(int64_t, double) const {
    SumsTotal<kSums> total;
    for (int s = 0; s < kSums; ++s) total.sum[s] = sum[s];
    return total;
  }
};

// What adds up kSums numbers of every element, by `sum`.
template <class T, bool kRows, int V, int kSums, class Epilogue_>
struct SumsOperation : Operation<T, kRows, V> {
  using A = Compute<T>;
  using Epilogue = Epilogue_;
  using Part = SumsPart<A, kSums>;
  using Merge = SumsMerge<kSums>;
  static constexpr int N = kRows ? V : 1;
  A sum[kSums][V] = {};
  template <class Loaded>
  __device__ void begin(const Loaded&) {}
  __device__ Sums<A, kSums, N> sums() const {
    Sums<A, kSums, N> all{};
    for (int v = 0; v < V; ++v)
      for (int s = 0; s < kSums; ++s) all.sum[s][v % N] += sum[s][v];
    return all;
  }
  static __device__ Part part(const Sums<A, kSums, 1>& of) {
    Part part;
    for (int s = 0; s < kSums; ++s) part.sum[s] = of.sum[s][0];
    return part;
  }
  static __device__ double base(const Part&) { return 0.0; }
  static __device__ SumsTotal<kSums> total(const Part& alone, int64_t) {
    SumsTotal<kSums> total;
    for (int s = 0; s < kSums; ++s) total.sum[s] = static_cast<double>(alone.sum[s]);
    return total;
  }
};

template <class T, bool kRows, int V, bool kFromInput>
struct BackwardSums : SumsOperation<T, kRows, V, 2, SumsEpilogue<Compute<T>>> {
  using A = Compute<T>;
  struct Loaded {
    Pack<T, V> x, dy;
  };
  static constexpr int kBatch = V == 1 && sizeof(T) < 8 ? 8 : sizeof(T) * V > 8 ? 2 : kFromInput ? 4 : 3;
  PerChannel<A, kRows, V> mean;
  ReluMask<T, kRows, V, kFromInput> masked;
  __device__ BackwardSums(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place), masked(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V, !kFromInput>(in, i)};
  }
  __device__ void use(const Arguments<T>&, int64_t, const Loaded& at, bool) {  // dy is 0 where no place is
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), g = masked(v, x, mean[v], static_cast<A>(at.dy.value[v]));
      this->sum[0][v] += g;
      this->sum[1][v] += g * (x - mean[v]);
    }
  }
};

template <class Op>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    apply(const __grid_constant__ Cut cut, const Arguments<typename Op::T> in) {
  const Place place = place_of<Op::kRows, Op::V>(cut);
  const Op op(in, place);
  walk<Op::kRows, Op::V, Op::kBatch>(cut, place, [&](const int64_t(&at)[Op::kBatch], auto count) {
    typename Op::Loaded loaded[Op::kBatch] = {};
    for (int k = 0; k < Op::kBatch; ++k)
      if (k < count) loaded[k] = Op::take(in, at[k]);
    for (int k = 0; k < Op::kBatch; ++k)
      if (k < count) op.write(in, at[k], loaded[k]);
  });
}

}  // namespace
}  // namespace bnlab::kernels::cuda
