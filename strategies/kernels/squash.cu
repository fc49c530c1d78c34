// dynamic_tanh on a GPU: one launch forward (read x, write y), and backward one that reads x and dy and
// writes dx, and a small one that adds up what the parameters get. Under bfloat16 an element costs 4 and 6
// bytes, and 2 more for each time that a residual, or y beside one, is read and the residual's gradient
// written.
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/launch.cuh"
#include "strategies/kernels/places.cuh"
#include "strategies/kernels/squash.hpp"

namespace bnlab::kernels::cuda {
namespace {

template <class T, class A>
struct Squashed {
  const T *x = nullptr, *residual = nullptr, *dy = nullptr, *read_y = nullptr;
  T *y = nullptr, *dx = nullptr, *dresidual = nullptr;
  const A *alpha = nullptr, *weight = nullptr, *bias = nullptr;
  A *dalpha = nullptr, *dweight = nullptr, *dbias = nullptr;
  A *parts = nullptr, *slopes = nullptr;  // slopes: what each block has for alpha
  bool relu = false;
};
template <class K>
using SquashedOf = Squashed<typename K::T, typename K::A>;

template <class K>
struct Loaded {
  typename K::Vector x, dy, added;  // added: forward the residual, backward y, which has one in it
};

template <class A, int N>
__device__ void of_channels(const A* values, int64_t channel, A otherwise, A (&out)[N]) {
  for (int v = 0; v < N; ++v) out[v] = values == nullptr ? otherwise : values[channel + v];
}

template <class K>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    squash(const Sweep sweep, const SquashedOf<K> in) {
  using A = typename K::A;
  const Places<K> at(sweep, blockIdx.x);
  if (at.count == 0) return;
  A gamma[K::N], beta[K::N];
  of_channels(in.weight, at.channel, A(1), gamma);
  of_channels(in.bias, at.channel, A(0), beta);
  const A alpha = *in.alpha;
  each_place<K::batch(K::kAdds ? 2 : 1)>(
      sweep, at,
      [&](int64_t i, bool inside) {
        Loaded<K> loaded{};
        loaded.x = load_if<K::V>(inside, in.x + i);
        if constexpr (K::kAdds) loaded.added = load_if<K::V>(inside, in.residual + i);
        return loaded;
      },
      [&](int64_t i, bool inside, const Loaded<K>& loaded) {
        typename K::Vector y;
        for (int v = 0; v < K::V; ++v) {
          const A t = std::tanh(static_cast<A>(loaded.x.value[v]) * alpha);
          A z = std::fma(t, gamma[v % K::N], beta[v % K::N]);
          if constexpr (K::kAdds) z += static_cast<A>(loaded.added.value[v]);
          y.value[v] = static_cast<typename K::T>(in.relu && z < 0 ? A(0) : z);  // NaN stays NaN
        }
        if (inside) store(in.y + i, y);
      });
}

template <class K>
__global__ void __launch_bounds__(kBlockThreads, kResident)
    squash_gradients(const Sweep sweep, const SquashedOf<K> in) {
  using A = typename K::A;
  const Places<K> at(sweep, blockIdx.x);
  A gamma[K::N] = {}, beta[K::N] = {}, sum[2][K::N] = {}, slope = 0;
  if (at.count > 0) {
    of_channels(in.weight, at.channel, A(1), gamma);
    of_channels(in.bias, at.channel, A(0), beta);
  }
  const A alpha = *in.alpha;
  each_place<K::batch(K::kAdds ? 3 : 2)>(
      sweep, at,
      [&](int64_t i, bool inside) {
        Loaded<K> loaded{};
        loaded.x = load_if<K::V>(inside, in.x + i);
        loaded.dy = load_if<K::V>(inside, in.dy + i);
        if constexpr (K::kAdds) loaded.added = load_if<K::V>(inside, in.read_y + i);
        return loaded;
      },
      [&](int64_t i, bool inside, const Loaded<K>& loaded) {
        typename K::Vector dx, dresidual;
        for (int v = 0; v < K::V; ++v) {
          const A x = static_cast<A>(loaded.x.value[v]), t = std::tanh(x * alpha);
          A y = std::fma(t, gamma[v % K::N], beta[v % K::N]);
          if constexpr (K::kAdds) y = static_cast<A>(loaded.added.value[v]);
          const A g = !in.relu || y > 0 ? static_cast<A>(loaded.dy.value[v]) : A(0);
          const A u = gamma[v % K::N] * g * (1 - t * t);
          sum[0][v % K::N] += g;
          sum[1][v % K::N] += g * t;
          slope += u * x;
          dresidual.value[v] = static_cast<typename K::T>(g);
          dx.value[v] = static_cast<typename K::T>(alpha * u);
        }
        if (inside) store(in.dx + i, dx);
        if (K::kAdds && inside) store(in.dresidual + i, dresidual);
      });
  write_parts(sweep, at, sum, in.parts);
  __shared__ A slopes[kBlockThreads];
  slopes[threadIdx.x] = slope;
  __syncthreads();
  sum_columns(
      1, static_cast<int>(blockDim.x), [&](int, int row) { return slopes[row]; },
      [&](int, double total) { in.slopes[blockIdx.x] = static_cast<A>(total); });
}

// The last block sums what alpha gets.
template <class T, class A>
__global__ void sum_parameters(const Sweep sweep, const Squashed<T, A> in) {
  const int parts = static_cast<int>(sweep.parts);
  if (blockIdx.x + 1 == gridDim.x) {
    sum_columns(
        1, parts * static_cast<int>(sweep.tiles), [&](int, int row) { return in.slopes[row]; },
        [&](int, double total) { *in.dalpha = static_cast<A>(total); });
    return;
  }
  merge_gradients<2>(
      blockIdx.x, sweep.channels, in.parts, /*slices=*/1, parts, [](int, int64_t, int64_t) { return 1.0; },
      [&](int n, int64_t c, double total) {
        A* out = n == 0 ? in.dbias : in.dweight;
        if (out != nullptr) out[c] = static_cast<A>(total);
      });
}

// Calls f(Kind, sweep, pointers).
template <class F>
void with_tensors(const Layout& layout, const SquashTensors& in, const F& f) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  with_kind(layout, in.x.scalar_type(), in.residual.defined() || in.read_y.defined(),
            {in.x, in.residual, in.dy, in.read_y, in.y, in.dx, in.dresidual}, [&](auto kind) {
              using K = decltype(kind);
              using T = typename K::T;
              using A = typename K::A;
              SquashedOf<K> to;
              to.x = data<const T>(in.x);
              to.residual = data<const T>(in.residual);
              to.dy = data<const T>(in.dy);
              to.read_y = data<const T>(in.read_y);
              to.y = data<T>(in.y);
              to.dx = data<T>(in.dx);
              to.dresidual = data<T>(in.dresidual);
              to.alpha = read<A>(in.alpha);
              to.weight = read<A>(in.weight);
              to.bias = read<A>(in.bias);
              to.dalpha = written<A>(in.dalpha);
              to.dweight = written<A>(in.dweight);
              to.dbias = written<A>(in.dbias);
              to.relu = in.relu;
              f(kind, plan_sweep<K>(layout, /*slices=*/1, /*merged=*/false), to);
            });
}

}  // namespace

void squash_forward(const Layout& layout, const SquashTensors& tensors) {
  with_tensors(layout, tensors, [](auto kind, const Sweep& sweep, const auto& in) {
    using K = decltype(kind);
    const dim3 grid(static_cast<unsigned>(sweep.blocks())), block(static_cast<unsigned>(sweep.threads));
    launch(squash<K>, grid, block, sweep, in);
  });
}

void squash_backward(const Layout& layout, const SquashTensors& tensors) {
  with_tensors(layout, tensors, [&](auto kind, const Sweep& sweep, auto in) {
    using K = decltype(kind);
    using T = typename K::T;
    using A = typename K::A;
    const at::TensorOptions options = tensors.alpha.options();
    const at::Tensor parts = at::empty({int64_t{sweep.parts}, 2, layout.channels}, options);
    const at::Tensor slopes = at::empty({sweep.blocks()}, options);
    in.parts = written<A>(parts);
    in.slopes = written<A>(slopes);
    const dim3 grid(static_cast<unsigned>(sweep.blocks())), block(static_cast<unsigned>(sweep.threads));
    launch(squash_gradients<K>, grid, block, sweep, in);
    launch(sum_parameters<T, A>, dim3(gradient_blocks(layout.channels) + 1), dim3(kBlockThreads), sweep, in);
  });
}

}  // namespace bnlab::kernels::cuda
