// Filter response normalisation on a GPU, by two launches forward and two backward: sums of every channel of
// every sample, and what is written by them. Under bfloat16 an element costs 6 bytes forward and 10 backward,
// and 2 more for each time that a residual is read or its gradient written.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/launch.cuh"
#include "strategies/kernels/places.cuh"
#include "strategies/kernels/response.hpp"

namespace bnlab::kernels::cuda {
namespace {

template <class T, class A>
struct Site {
  const T *x = nullptr, *residual = nullptr, *dy = nullptr;
  T *y = nullptr, *dx = nullptr, *dresidual = nullptr;
  const A *weight = nullptr, *bias = nullptr, *threshold = nullptr;
  A *invstd = nullptr, *scale = nullptr, *shift = nullptr;  // [samples, C]
  A *dweight = nullptr, *dbias = nullptr, *dthreshold = nullptr;
  A* parts = nullptr;
  int count = 0;  // of the parts of a sample
  double eps = 0;
  bool relu = false;
};
template <class K>
using SiteOf = Site<typename K::T, typename K::A>;

template <class K>
struct Loaded {
  using A = typename K::A;
  typename K::Vector x, dy, residual;

  // About tau, of the v-th neighbour; rounded alike wherever it is asked for, so that the backward pass
  // sees the sign that was written.
  __device__ A z(int v, A scale, A shift) const {
    const A result = std::fma(static_cast<A>(x.value[v]), scale, shift);
    return K::kAdds ? result + static_cast<A>(residual.value[v]) : result;
  }
};
template <class K, bool kBackward>
__device__ Loaded<K> take(const SiteOf<K>& site, int64_t i, bool inside) {
  Loaded<K> loaded{};
  loaded.x = load_if<K::V>(inside, site.x + i);
  if constexpr (kBackward) loaded.dy = load_if<K::V>(inside, site.dy + i);
  if constexpr (K::kAdds) loaded.residual = load_if<K::V>(inside, site.residual + i);
  return loaded;
}

template <class K>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    sum_squares(const Sweep sweep, const SiteOf<K> site) {
  using A = typename K::A;
  const Places<K> at(sweep, blockIdx.x);
  A sum[1][K::N] = {};
  each_place<K::batch(1)>(
      sweep, at, [&](int64_t i, bool inside) { return load_if<K::V>(inside, site.x + i); },
      [&](int64_t, bool, const auto& x) {
        for (int v = 0; v < K::V; ++v) {
          const A value = static_cast<A>(x.value[v]);
          sum[0][v % K::N] += value * value;
        }
      });
  write_parts(sweep, at, sum, site.parts);
}

template <class K>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    write_response(const Sweep sweep, const SiteOf<K> site) {
  using A = typename K::A;
  const Places<K> at(sweep, blockIdx.x);
  __shared__ A scales[kTile], shifts[kTile], thresholds[kTile];
  const double n = static_cast<double>(sweep.images * sweep.plane);
  merge_parts(sweep, at, site.parts, site.count, /*N=*/1, 0, [&](int column, double squares) {
    if (!at.inside(sweep, column)) return;
    const int64_t c = at.first_channel + column, i = int64_t{at.slice} * sweep.channels + c;
    const A s = static_cast<A>(1.0 / sqrt(squares / n + site.eps));
    const A tau = site.threshold == nullptr ? A(0) : site.threshold[c];
    thresholds[column] = tau;
    scales[column] = site.weight == nullptr ? s : s * site.weight[c];
    shifts[column] = (site.bias == nullptr ? A(0) : site.bias[c]) - tau;
    if (at.part != 0) return;
    site.invstd[i] = s;
    site.scale[i] = scales[column];
    site.shift[i] = shifts[column];
  });
  A scale[K::N] = {}, shift[K::N] = {}, tau[K::N] = {};
  if (at.count > 0) {
    at.pick(scales, scale);
    at.pick(shifts, shift);
    at.pick(thresholds, tau);
  }
  each_place<K::batch(K::kAdds ? 2 : 1)>(
      sweep, at, [&](int64_t i, bool inside) { return take<K, /*kBackward=*/false>(site, i, inside); },
      [&](int64_t i, bool inside, const Loaded<K>& in) {
        typename K::Vector y;
        for (int v = 0; v < K::V; ++v) {
          const A z = in.z(v, scale[v % K::N], shift[v % K::N]);
          const A passed = site.relu && z < 0 ? A(0) : z;  // NaN stays NaN
          y.value[v] = static_cast<typename K::T>(passed + tau[v % K::N]);
        }
        if (inside) store(site.y + i, y);
      });
}

// Of the gradient where it passes, of that times x, and of the gradient where it does not pass.
template <class K>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    sum_gradients(const Sweep sweep, const SiteOf<K> site) {
  using A = typename K::A;
  const Places<K> at(sweep, blockIdx.x);
  A sum[3][K::N] = {}, scale[K::N] = {}, shift[K::N] = {};
  if (at.count > 0) {
    const int64_t first = int64_t{at.slice} * sweep.channels + at.first_channel;
    at.pick(site.scale + first, scale);
    at.pick(site.shift + first, shift);
  }
  each_place<K::batch(K::kAdds ? 3 : 2)>(
      sweep, at, [&](int64_t i, bool inside) { return take<K, /*kBackward=*/true>(site, i, inside); },
      [&](int64_t, bool, const Loaded<K>& in) {
        for (int v = 0; v < K::V; ++v) {
          const A x = static_cast<A>(in.x.value[v]), dy = static_cast<A>(in.dy.value[v]);
          const bool passes = !site.relu || in.z(v, scale[v % K::N], shift[v % K::N]) > 0;
          const A g = passes ? dy : A(0);
          sum[0][v % K::N] += g;
          sum[1][v % K::N] += g * x;
          sum[2][v % K::N] += passes ? A(0) : dy;
        }
      });
  write_parts(sweep, at, sum, site.parts);
}

// The first blocks give the parameters their gradients.
template <class K>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    write_gradients(const Sweep sweep, const SiteOf<K> site, const unsigned first_blocks) {
  using A = typename K::A;
  if (blockIdx.x < first_blocks) {
    merge_gradients<3>(
        blockIdx.x, sweep.channels, site.parts, static_cast<int>(sweep.slices), site.count,
        [&](int n, int64_t sample, int64_t c) {
          return n == 1 ? static_cast<double>(site.invstd[sample * sweep.channels + c]) : 1.0;
        },
        [&](int n, int64_t c, double total) {
          A* out = n == 0 ? site.dbias : n == 1 ? site.dweight : site.dthreshold;
          if (out != nullptr) out[c] = static_cast<A>(total);
        });
    return;
  }
  const Places<K> at(sweep, blockIdx.x - first_blocks);
  const int64_t first = int64_t{at.slice} * sweep.channels + at.first_channel;
  __shared__ A through_square[kTile];
  const double n = static_cast<double>(sweep.images * sweep.plane);
  merge_parts(sweep, at, site.parts, site.count, /*N=*/3, 1, [&](int column, double sum_gx) {
    if (!at.inside(sweep, column)) return;
    const double s = static_cast<double>(site.invstd[first + column]);
    const double gamma =
        site.weight == nullptr ? 1.0 : static_cast<double>(site.weight[at.first_channel + column]);
    through_square[column] = static_cast<A>(-gamma * s * (s * s) * sum_gx / n);
  });
  A scale[K::N] = {}, shift[K::N] = {}, b[K::N] = {};
  if (at.count > 0) {
    at.pick(site.scale + first, scale);
    at.pick(site.shift + first, shift);
    at.pick(through_square, b);
  }
  each_place<K::batch(K::kAdds ? 3 : 2)>(
      sweep, at, [&](int64_t i, bool inside) { return take<K, /*kBackward=*/true>(site, i, inside); },
      [&](int64_t i, bool inside, const Loaded<K>& in) {
        typename K::Vector dx, dresidual;
        for (int v = 0; v < K::V; ++v) {
          const A x = static_cast<A>(in.x.value[v]);
          const bool passes = !site.relu || in.z(v, scale[v % K::N], shift[v % K::N]) > 0;
          const A g = passes ? static_cast<A>(in.dy.value[v]) : A(0);
          dresidual.value[v] = static_cast<typename K::T>(g);
          dx.value[v] = static_cast<typename K::T>(scale[v % K::N] * g + b[v % K::N] * x);
        }
        if (inside && site.dx != nullptr) store(site.dx + i, dx);
        if (inside && site.dresidual != nullptr) store(site.dresidual + i, dresidual);
      });
}

template <class K>
SiteOf<K> site_of(const ResponseTensors& in, const at::Tensor& parts, unsigned count) {
  using T = typename K::T;
  using A = typename K::A;
  SiteOf<K> site;
  site.x = data<const T>(in.x);
  site.residual = data<const T>(in.residual);
  site.dy = data<const T>(in.dy);
  site.y = data<T>(in.y);
  site.dx = data<T>(in.dx);
  site.dresidual = data<T>(in.dresidual);
  site.weight = read<A>(in.weight);
  site.bias = read<A>(in.bias);
  site.threshold = read<A>(in.threshold);
  site.invstd = written<A>(in.invstd);
  site.scale = written<A>(in.scale);
  site.shift = written<A>(in.shift);
  site.dweight = written<A>(in.dweight);
  site.dbias = written<A>(in.dbias);
  site.dthreshold = written<A>(in.dthreshold);
  site.parts = written<A>(parts);
  site.count = static_cast<int>(count);
  site.eps = in.eps;
  site.relu = in.relu;
  return site;
}

// Calls f(Kind, sweep, site) with room for `sums` sums of each channel in every part.
template <class F>
void with_site(const Layout& layout, const ResponseTensors& in, int64_t sums, const F& f) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  with_kind(layout, in.x.scalar_type(), in.residual.defined(),
            {in.x, in.residual, in.dy, in.y, in.dx, in.dresidual}, [&](auto kind) {
              using K = decltype(kind);
              const Sweep sweep = plan_sweep<K>(layout, layout.rows, /*merged=*/true);
              const at::Tensor parts =
                  at::empty({layout.rows, int64_t{sweep.parts}, sums, layout.channels}, in.invstd.options());
              f(kind, sweep, site_of<K>(in, parts, sweep.parts));
            });
}

}  // namespace

void response_forward(const Layout& layout, const ResponseTensors& in) {
  with_site(layout, in, /*sums=*/1, [](auto kind, const Sweep& sweep, const auto& site) {
    using K = decltype(kind);
    const dim3 grid(static_cast<unsigned>(sweep.blocks())), block(static_cast<unsigned>(sweep.threads));
    launch(sum_squares<K>, grid, block, sweep, site);
    launch(write_response<K>, grid, block, sweep, site);
  });
}

void response_backward(const Layout& layout, const ResponseTensors& in) {
  with_site(layout, in, /*sums=*/3, [](auto kind, const Sweep& sweep, const auto& site) {
    using K = decltype(kind);
    const unsigned first = gradient_blocks(sweep.channels), blocks = static_cast<unsigned>(sweep.blocks());
    const bool writes = site.dx != nullptr || site.dresidual != nullptr;
    const dim3 block(static_cast<unsigned>(sweep.threads));
    launch(sum_gradients<K>, dim3(blocks), block, sweep, site);
    launch(write_gradients<K>, dim3(first + (writes ? blocks : 0)), block, sweep, site, first);
  });
}

}  // namespace bnlab::kernels::cuda
