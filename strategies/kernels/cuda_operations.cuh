// What the CUDA kernels do with V neighbouring elements: one struct per kernel, built once per thread with
// the values of the thread's channels and called at every place the walk visits. The two reductions keep
// their sums, load several places before they use the first (kBatch), and say where the total goes.
//
// Moments sums d = x - p and d^2 about p, the first element a thread meets: M2 = sum d^2 - (sum d)^2 / n.
// Cancellation is bounded: where p lies far from the rest, p itself brings an M2 of that size.
#pragma once

#include <cmath>
#include <type_traits>

#include "strategies/kernels/cuda_walk.cuh"
#include "strategies/kernels/finish_channel.hpp"

namespace bnlab::kernels::cuda {
namespace {

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
  const A* mean = nullptr;   // [slices, channels], like first, second and third
  const A* scale = nullptr;  // of the forward pass, where a mask is made from x
  const A* shift = nullptr;
  const A* first = nullptr;   // scale, or a
  const A* second = nullptr;  // shift, or b
  const A* third = nullptr;   // c
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

// Which gradients pass where that was not decided by reading y: all, or those with a positive y computed from x.
template <class T, bool kRows, int V, bool kFromInput>
struct Passing {
  using A = Compute<T>;
  __device__ Passing(const Arguments<T>&, const Place&) {}
  __device__ A operator()(int, A, A, A g) const { return g; }
};
template <class T, bool kRows, int V>
struct Passing<T, kRows, V, true> {
  using A = Compute<T>;
  PerChannel<A, kRows, V> scale, shift;
  __device__ Passing(const Arguments<T>& in, const Place& place)
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
      : mean(in.mean, place), scale(in.first, place), shift(in.second, place) {}
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
  Passing<T, kRows, V, kFromInput> passing;
  __device__ AnyInputGradient(const Arguments<T>& in, const Place& place)
      : mean(in.mean, place),
        a(in.first, place),
        b(in.second, place),
        c(in.third, place),
        passing(in, place) {}
  __device__ void operator()(const Arguments<T>& in, int64_t i) const {
    const Pack<T, V> x = load<V>(in.x + i), g = gradient<T, V>(in, i);
    Pack<T, V> dx;
    for (int v = 0; v < V; ++v) {
      const A value = static_cast<A>(x.value[v]), d = value - mean[v];
      const A passed = passing(v, value, mean[v], static_cast<A>(g.value[v]));
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
struct AfterMoments {
  FinishForward<A> forward;
  UpdatePair<A> pair;
  bool given, with_pair;
  __device__ void operator()(int64_t channel) const {
    forward(channel);
    if (with_pair) pair(channel);
  }
};

template <class A>
struct AfterSums {
  FinishBackward<A> backward;
  bool given;
  __device__ void operator()(int64_t channel) const { backward(channel); }
};

template <class T, bool kRows, int V>
struct Moments {
  using A = Compute<T>;
  using Result = double;
  using Loaded = Pack<T, V>;
  using After = AfterMoments<A>;
  static constexpr int kBatch = 4;
  static constexpr bool kAboutMean = true;  // first and second are a mean and a sum of squares about it
  A pivot[V] = {}, sum[V] = {}, square[V] = {};
  int64_t count = 0;
  __device__ Moments(const Arguments<T>&, const Place&) {}
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
  static __device__ void finish(double* out, int64_t slice, int64_t channel, int64_t channels, double count,
                                double mean, double m2) {
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
  using After = AfterSums<A>;
  static constexpr int kBatch = 2;
  static constexpr bool kAboutMean = false;
  PerChannel<A, kRows, V> mean;
  Passing<T, kRows, V, kFromInput> passing;
  A sum_g[V] = {}, sum_gx[V] = {};
  int64_t count = 0;
  __device__ AnySums(const Arguments<T>& in, const Place& place) : mean(in.mean, place), passing(in, place) {}
  static __device__ Loaded take(const Arguments<T>& in, int64_t i) {
    return {load<V>(in.x + i), gradient<T, V>(in, i)};
  }
  __device__ void use(const Loaded& at) {
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), g = passing(v, x, mean[v], static_cast<A>(at.dy.value[v]));
      sum_g[v] += g;
      sum_gx[v] += g * (x - mean[v]);
    }
    ++count;
  }
  __device__ double first(int v) const { return static_cast<double>(sum_g[v]); }
  __device__ double second(int v) const { return static_cast<double>(sum_gx[v]); }
  static __device__ void finish(A* out, int64_t slice, int64_t channel, int64_t channels, double,
                                double sum_g, double sum_gx) {
    out[slice * 2 * channels + channel] = static_cast<A>(sum_g);
    out[(slice * 2 + 1) * channels + channel] = static_cast<A>(sum_gx);
  }
};
template <class T, bool kRows, int V>
using Sums = AnySums<T, kRows, V, false>;
template <class T, bool kRows, int V>
using SumsFromInput = AnySums<T, kRows, V, true>;

}  // namespace
}  // namespace bnlab::kernels::cuda
