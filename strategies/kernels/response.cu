// Filter response normalisation on a GPU, by two launches forward and two backward: sums of every channel of
// every sample, and what is written by them. Under bfloat16 an element costs 6 bytes forward and 10 backward,
// and 2 more for each time that a residual is read or its gradient written.
#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/response.hpp"
#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {
namespace {

template <class A>
struct SquaresEpilogue : NoEnd {
  channel::ResponseForward<A> forward;
  double count;  // of positions
  __device__ Kept of_slice(int64_t sample, int64_t c, int64_t channels, const SumsTotal<1>& squares,
                           Kept*) const {
    forward.of_sample(sample * channels + c, c, channel::quotient(squares.sum[0], count));
    return {};
  }
};

template <class T, bool kRows, int V>
struct Squares : SumsOperation<T, kRows, V, 1, SquaresEpilogue<Compute<T>>>,
                 LayerPlaces<T, V, /*kBackward=*/false, /*kAdds=*/false> {
  using A = Compute<T>;
  using typename LayerPlaces<T, V, false, false>::Loaded;
  __device__ Squares(const Arguments<T>&, const Place&) {}
  __device__ void use(const Arguments<T>&, int64_t, const Loaded& at, bool) {
    for (int v = 0; v < V; ++v) {
      const A value = static_cast<A>(at.x.value[v]);
      this->sum[0][v] += value * value;
    }
  }
};

// z, about tau, of which all operations but the first ask.
template <class T, bool kRows, int V, bool kBackward, bool kAdds>
struct Response : LayerPlaces<T, V, kBackward, kAdds> {
  using A = Compute<T>;
  using typename LayerPlaces<T, V, kBackward, kAdds>::Loaded;
  PerChannel<A, kRows, V> scale, shift;
  __device__ Response(const Arguments<T>& in, const Place& place)
      : scale(in.scale, place), shift(in.shift, place) {}
  // Of the v-th neighbour; rounded alike wherever it is asked for, so that the backward pass sees the sign
  // that was written.
  __device__ A z(int v, const Loaded& at) const {
    const A result = std::fma(static_cast<A>(at.x.value[v]), scale[v], shift[v]);
    return kAdds ? result + static_cast<A>(at.residual.value[v]) : result;
  }
  __device__ bool passes(const Arguments<T>& in, int v, const Loaded& at) const {
    return !in.relu || z(v, at) > 0;
  }
};

template <class T, bool kRows, int V, bool kAdds>
struct ResponseOutput : Operation<T, kRows, V>, Response<T, kRows, V, /*kBackward=*/false, kAdds> {
  using A = Compute<T>;
  using typename Response<T, kRows, V, false, kAdds>::Loaded;
  PerChannel<A, kRows, V> tau;
  __device__ ResponseOutput(const Arguments<T>& in, const Place& place)
      : Response<T, kRows, V, false, kAdds>(in, place), tau(in.tau, place, A(0)) {}
  __device__ void write(const Arguments<T>& in, int64_t i, const Loaded& at) const {
    Pack<T, V> y;
    for (int v = 0; v < V; ++v) {
      const A z = this->z(v, at), passed = in.relu && z < 0 ? A(0) : z;  // NaN stays NaN
      y.value[v] = static_cast<T>(passed + tau[v]);
    }
    store(in.out + i, y);
  }
};

template <class A>
struct ResponseEpilogue {
  channel::ResponseBackward<A> backward;
  A* sums;  // those that `backward` reads
  struct Kept {};
  __device__ Kept of_slice(int64_t sample, int64_t c, int64_t channels, const SumsTotal<3>& total,
                           Kept*) const {
    total.write(sums, sample, c, channels);
    backward.of_sample(sample * channels + c, c, total.sum[1]);
    return {};
  }
  __device__ bool has_end() const { return true; }
  template <class Lanes>
  __device__ void at_end(int64_t c, const Kept&, const Kept*, const Lanes& team) const {
    backward.of_parameters(c, team);
  }
};

// Of the gradient where it passes, of that times x, and of the gradient where it does not pass.
template <class T, bool kRows, int V, bool kAdds>
struct ResponseSums : SumsOperation<T, kRows, V, 3, ResponseEpilogue<Compute<T>>>,
                      Response<T, kRows, V, /*kBackward=*/true, kAdds> {
  using A = Compute<T>;
  using typename Response<T, kRows, V, true, kAdds>::Loaded;
  using Response<T, kRows, V, true, kAdds>::Response;
  __device__ void use(const Arguments<T>& in, int64_t, const Loaded& at, bool) {
    for (int v = 0; v < V; ++v) {
      const A x = static_cast<A>(at.x.value[v]), dy = static_cast<A>(at.dy.value[v]);
      const bool passes = this->passes(in, v, at);
      const A g = passes ? dy : A(0);
      this->sum[0][v] += g;
      this->sum[1][v] += g * x;
      this->sum[2][v] += passes ? A(0) : dy;
    }
  }
};

template <class T, bool kRows, int V, bool kAdds>
struct ResponseGradient : Operation<T, kRows, V>, Response<T, kRows, V, /*kBackward=*/true, kAdds> {
  using A = Compute<T>;
  using typename Response<T, kRows, V, true, kAdds>::Loaded;
  PerChannel<A, kRows, V> b;
  __device__ ResponseGradient(const Arguments<T>& in, const Place& place)
      : Response<T, kRows, V, true, kAdds>(in, place), b(in.b, place) {}
  __device__ void write(const Arguments<T>& in, int64_t i, const Loaded& at) const {
    Pack<T, V> dx, dresidual;
    for (int v = 0; v < V; ++v) {
      const A g = this->passes(in, v, at) ? static_cast<A>(at.dy.value[v]) : A(0);
      dresidual.value[v] = static_cast<T>(g);
      dx.value[v] = static_cast<T>(this->scale[v] * g + b[v] * static_cast<A>(at.x.value[v]));
    }
    if (in.out != nullptr) store(in.out + i, dx);
    if (in.dresidual != nullptr) store(in.dresidual + i, dresidual);
  }
};

}  // namespace

void response_forward(const LayerTensors& in, const Coefficients& k, const ResponseOptions& options) {
  with_layer(in, [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    const SquaresEpilogue<Compute<T>> epilogue{{}, {options, k}, static_cast<double>(in.layout.plane)};
    arguments.scale = epilogue.forward.out.scale;
    arguments.shift = epilogue.forward.out.shift;
    arguments.tau = epilogue.forward.threshold;
    with_shape(in.layout, arguments, [&](auto rows, auto vector) {
      launch_reduce<Squares<T, rows, vector>>(in.layout, in.offsets, arguments, k.scale.options(), epilogue);
      with_flag(arguments.residual != nullptr, [&](auto adds) {
        launch_apply<ResponseOutput<T, rows, vector, adds>>(in.layout, in.offsets, arguments);
      });
    });
  });
}

void response_backward(const LayerTensors& in, const Coefficients& k, const ResponseOptions& options,
                       const ResponseGradients& out) {
  const int64_t samples = in.layout.rows, channels = in.layout.channels;
  const at::Tensor sums = empty_tensor({samples, 3, channels}, k.scale.options());
  const at::Tensor b = empty_tensor({samples, channels}, k.scale.options());
  with_layer(in, [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    using A = Compute<T>;
    arguments.scale = read<A>(k.scale);
    arguments.shift = read<A>(k.shift);
    arguments.b = read<A>(b);
    const ResponseEpilogue<A> epilogue{{in.layout.plane, sums, k, b, options, out}, written<A>(sums)};
    with_shape(in.layout, arguments, [&](auto rows, auto vector) {
      with_flag(arguments.residual != nullptr, [&](auto adds) {
        launch_reduce<ResponseSums<T, rows, vector, adds>>(in.layout, in.offsets, arguments, sums.options(),
                                                           epilogue);
        if (arguments.out == nullptr && arguments.dresidual == nullptr) return;
        launch_apply<ResponseGradient<T, rows, vector, adds>>(in.layout, in.offsets, arguments);
      });
    });
  });
}

}  // namespace bnlab::kernels::cuda
