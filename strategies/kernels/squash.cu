// dynamic_tanh on a GPU: one launch forward (read x, write y), and backward one that reads x and dy and
// writes dx, and a small one that adds up what alpha gets. Under bfloat16 an element costs 4 and 6 bytes, and
// 2 more for each time that a residual, or y beside one, is read and the residual's gradient written.
#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/squash.hpp"
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {
namespace {

// Backward the residual is y, which has one in it.
template <class T, bool kRows, int V, bool kBackward, bool kAdds>
struct Squashing : LayerPlaces<T, V, kBackward, kAdds> {
  using A = Compute<T>;
  PerChannel<A, kRows, V> gamma, beta;
  A alpha;
  __device__ Squashing(const Arguments<T>& in, const Place& place)
      : gamma(in.scale, place, A(1)), beta(in.shift, place, A(0)), alpha(*in.alpha) {}
};

template <class T, bool kRows, int V, bool kAdds>
struct SquashOutput : Operation<T, kRows, V>, Squashing<T, kRows, V, /*kBackward=*/false, kAdds> {
  using A = Compute<T>;
  using typename Squashing<T, kRows, V, false, kAdds>::Loaded;
  using Squashing<T, kRows, V, false, kAdds>::Squashing;
  __device__ void write(const Arguments<T>& in, int64_t i, const Loaded& at) const {
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) {
      const A t = std::tanh(static_cast<A>(at.x.value[v]) * this->alpha);
      A z = std::fma(t, this->gamma[v], this->beta[v]);
      if constexpr (kAdds) z += static_cast<A>(at.residual.value[v]);
      y.value[v] = static_cast<T>(in.relu && z < 0 ? A(0) : z);  // NaN stays NaN
    }
    store(in.out + i, y);
  }
};

template <class A>
struct SquashEpilogue : NoEnd {
  A *dweight, *dbias, *slopes;  // slopes: what alpha gets, in parts
  __device__ Kept of_slice(int64_t, int64_t c, int64_t, const SumsTotal<3>& total, Kept*) const {
    if (dbias != nullptr) dbias[c] = static_cast<A>(total.sum[0]);
    if (dweight != nullptr) dweight[c] = static_cast<A>(total.sum[1]);
    slopes[c] = static_cast<A>(total.sum[2]);
    return {};
  }
};

template <class T, bool kRows, int V, bool kAdds>
struct SquashGradient : SumsOperation<T, kRows, V, 3, SquashEpilogue<Compute<T>>>,
                        Squashing<T, kRows, V, /*kBackward=*/true, kAdds> {
  using A = Compute<T>;
  using typename Squashing<T, kRows, V, true, kAdds>::Loaded;
  using Squashing<T, kRows, V, true, kAdds>::Squashing;
  // Fewer than its registers could load, since they hold its sums, too.
  static constexpr int kBatch = std::min(V == 1 ? 4 : 2, LayerPlaces<T, V, true, kAdds>::kBatch);
  __device__ void use(const Arguments<T>& in, int64_t i, const Loaded& at, bool inside) {
    Pack<T, V> dx, dresidual;
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), t = std::tanh(x * this->alpha);
      A y = std::fma(t, this->gamma[v], this->beta[v]);
      if constexpr (kAdds) y = static_cast<A>(at.residual.value[v]);
      const A g = !in.relu || y > 0 ? static_cast<A>(at.dy.value[v]) : A(0);
      const A u = this->gamma[v] * g * (1 - t * t);
      this->sum[0][v] += g;
      this->sum[1][v] += g * t;
      this->sum[2][0] += u * x;  // of all V neighbours: alpha belongs to all channels
      dresidual.value[v] = static_cast<T>(g);
      dx.value[v] = static_cast<T>(this->alpha * u);
    }
    if (inside) store(in.out + i, dx);
    if (kAdds && inside) store(in.dresidual + i, dresidual);
  }
};

// By one warp.
template <class A>
__global__ void sum_slopes(const A* slopes, int64_t channels, A* dalpha) {
  double sum = 0;
#pragma unroll 8
  for (int64_t c = threadIdx.x; c < channels; c += 32) sum += static_cast<double>(slopes[c]);
  sum = Lanes{0, 32}.sum(sum);
  if (threadIdx.x == 0) *dalpha = static_cast<A>(sum);
}

// Calls f(arguments, and what with_shape calls its f with).
template <class F>
void with_squash(const LayerTensors& in, const SquashOptions& options, const F& f) {
  with_layer(in, [&](auto arguments) {
    using A = typename decltype(arguments)::A;
    arguments.scale = read<A>(options.weight);
    arguments.shift = read<A>(options.bias);
    arguments.alpha = read<A>(options.alpha);
    with_shape(in.layout, arguments, [&](auto rows, auto vector) { f(arguments, rows, vector); });
  });
}

}  // namespace

void squash_forward(const LayerTensors& in, const SquashOptions& options) {
  with_squash(in, options, [&](const auto& arguments, auto rows, auto vector) {
    using T = typename std::remove_cvref_t<decltype(arguments)>::Element;
    with_flag(arguments.residual != nullptr, [&](auto adds) {
      launch_apply<SquashOutput<T, rows, vector, adds>>(in.layout, in.offsets, arguments);
    });
  });
}

void squash_backward(const LayerTensors& in, const SquashOptions& options, const SquashGradients& out) {
  const at::Tensor slopes = empty_tensor({in.layout.channels}, options.alpha.options());
  with_squash(in, options, [&](const auto& arguments, auto rows, auto vector) {
    using T = typename std::remove_cvref_t<decltype(arguments)>::Element;
    using A = Compute<T>;
    const SquashEpilogue<A> epilogue{{}, written<A>(out.dweight), written<A>(out.dbias), written<A>(slopes)};
    with_flag(arguments.residual != nullptr, [&](auto adds) {
      launch_reduce<SquashGradient<T, rows, vector, adds>>(in.layout, in.offsets, arguments, slopes.options(),
                                                           epilogue);
    });
    launch(sum_slopes<A>, dim3(1), dim3(32), epilogue.slopes, in.layout.channels, written<A>(out.dalpha));
  });
}

}  // namespace bnlab::kernels::cuda
