// The CUDA half of the kernels: how they are launched. Everything runs on the current stream;
// nothing is copied from or to the host.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>

#include "strategies/kernels/cuda_kernels.cuh"
#include "strategies/kernels/finish_steps.hpp"
#include "strategies/kernels/launch.cuh"

namespace bnlab::kernels::cuda {
namespace {

// Whether whole 16-byte vectors of T lie aligned in every tensor of the call.
template <class T>
bool vectors_fit(const Layout& layout, std::initializer_list<const void*> pointers) {
  for (const void* p : pointers) {
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return false;
  }
  return (layout.channels_last ? layout.channels : layout.plane) % (16 / static_cast<int64_t>(sizeof(T))) ==
         0;
}

template <class T>
bool vectors_fit(const Layout& layout, const Arguments<T>& in) {
  return vectors_fit<T>(layout, {in.x, in.dy, in.y, in.residual, in.out});
}

// Kernels without sums may be cut at will; the others into one wave of blocks, and into parts that the last block
// merges quickly. Its tile is at most 64 channels wide.
constexpr Limits kFine{32, 2048, kMaximumParts};

Limits one_wave(int vector) {
  int device = 0, processors = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  return {64 / vector, int64_t{kBlocksPerProcessor} * processors, 256};
}

// At least `count` tickets that are 0 on the current stream; every kernel leaves them so. The launches of a thread on one
// stream share them. Each thread has its own, so that none waits for another's allocation.
unsigned* tickets(int64_t count, const at::TensorOptions& options) {
  thread_local auto& of_stream =
      *new std::map<std::pair<int64_t, int64_t>, at::Tensor>;  // CUDA may end before the thread does
  const auto stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor& held = of_stream[{stream.device_index(), stream.id()}];
  if (!held.defined() || held.numel() < count) {
    held = at::zeros({std::max<int64_t>(4096, count)}, options.dtype(at::kInt));
  }
  return reinterpret_cast<unsigned*>(held.data_ptr<int>());
}

template <template <class, bool, int> class Op, class T, bool kRows, int V>
void launch_apply(const Layout& layout, const Offsets& offsets, const Arguments<T>& in) {
  const Launches plan = plan_launches(layout, offsets, V, kFine);
  for (size_t k = 0; k < plan.cuts.size(); ++k) {
    const dim3 grid(plan.grid.x, plan.grid.y, plan.slices[k]);
    launch(apply<Op<T, kRows, V>, T, kRows, V>, grid, plan.block, plan.cuts[k], in);
  }
}

template <template <class, bool, int> class Op, class T, bool kRows, int V>
void launch_reduce(const Layout& layout, const Offsets& offsets, const Arguments<T>& in, at::Tensor& out,
                   const typename Op<T, kRows, V>::After& after) {
  using Kernel = Op<T, kRows, V>;
  const Launches plan = plan_launches(layout, offsets, V, one_wave(V));
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  const at::Tensor parts =
      at::empty({slices, plan.grid.y, 3, layout.channels}, out.options().dtype(at::kDouble));
  const Totals<Kernel> to{parts.data_ptr<double>(), tickets((slices + 1) * plan.grid.x, out.options()),
                          static_cast<unsigned>(slices), out.data_ptr<typename Kernel::Result>(), after};
  for (size_t k = 0; k < plan.cuts.size(); ++k) {
    const dim3 grid(plan.grid.x, plan.grid.y, plan.slices[k]);
    launch(reduce<Kernel, T, kRows, V>, grid, plan.block, plan.cuts[k], in, to);
  }
}

template <template <class, bool, int> class Op, class T>
void apply_any(const Layout& layout, const Offsets& offsets, const Arguments<T>& in) {
  constexpr int V = 16 / sizeof(T);
  const bool vectors = vectors_fit(layout, in);
  if (layout.channels_last) {
    (vectors ? launch_apply<Op, T, true, V> : launch_apply<Op, T, true, 1>)(layout, offsets, in);
  } else {
    (vectors ? launch_apply<Op, T, false, V> : launch_apply<Op, T, false, 1>)(layout, offsets, in);
  }
}

template <template <class, bool, int> class Op, class T, bool kRows, class After>
void reduce_in(const Layout& layout, const Offsets& offsets, const Arguments<T>& in, at::Tensor& out,
               const After& after) {
  constexpr int V = 16 / sizeof(T);
  (vectors_fit(layout, in) ? launch_reduce<Op, T, kRows, V> : launch_reduce<Op, T, kRows, 1>)(layout, offsets,
                                                                                              in, out, after);
}

template <template <class, bool, int> class Op, class T, class After>
void reduce_any(const Layout& layout, const Offsets& offsets, const Arguments<T>& in, at::Tensor& out,
                const After& after) {
  (layout.channels_last ? reduce_in<Op, T, true, After> : reduce_in<Op, T, false, After>)(layout, offsets, in,
                                                                                          out, after);
}

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// `computes_sign`: y is not read where it can be computed.
template <class T>
Arguments<T> backward_arguments(const Backward& in, bool computes_sign) {
  Arguments<T> arguments;
  arguments.x = data<T>(in.x);
  arguments.dy = data<T>(in.dy);
  arguments.mean = data<Compute<T>>(in.mean);
  if (computes_sign && in.from_input.scale.defined()) {
    arguments.scale = data<Compute<T>>(in.from_input.scale);
    arguments.shift = data<Compute<T>>(in.from_input.shift);
  } else {
    arguments.y = data<T>(in.y);
  }
  return arguments;
}

// Calls f with an empty Arguments of the dtype.
template <class F>
void dispatch(at::ScalarType dtype, F f) {
  switch (dtype) {
    case at::kDouble:
      return f(Arguments<double>{});
    case at::kFloat:
      return f(Arguments<float>{});
    case at::kBFloat16:
      return f(Arguments<at::BFloat16>{});
    default:
      return f(Arguments<at::Half>{});
  }
}

}  // namespace

void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out,
             const ForwardStep* forward, const PairStep* pair) {
  const c10::cuda::CUDAGuard guard(x.device());
  if (x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(x.scalar_type(), [&](auto in) {
    using T = typename decltype(in)::Element;
    using A = Compute<T>;
    in.x = data<T>(x);
    AfterMoments<A> after{};
    if (forward != nullptr) {
      after = {forward->body<A>(), {}, true, pair != nullptr};
      if (pair != nullptr) after.pair = pair_body<A>(*pair, out);
    }
    reduce_any<Moments, T>(layout, offsets, in, out, after);
  });
}

void backward_sums(const Layout& layout, const Offsets& offsets, const Backward& in, at::Tensor& out,
                   const BackwardStep* backward) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  if (in.x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    using A = Compute<T>;
    AfterSums<A> after{};
    if (backward != nullptr) after = {backward->body<A>(), true};
    // Three constants and two sums for each of 8 channels are more than the registers of a thread hold.
    constexpr bool kFitsInRows = sizeof(T) > 2;
    const Arguments<T> arguments = backward_arguments<T>(in, kFitsInRows || !layout.channels_last);
    if (arguments.scale == nullptr) {
      reduce_any<Sums, T>(layout, offsets, arguments, out, after);
    } else if constexpr (kFitsInRows) {
      reduce_any<SumsFromInput, T>(layout, offsets, arguments, out, after);
    } else {
      reduce_in<SumsFromInput, T, false>(layout, offsets, arguments, out, after);
    }
  });
}

void normalise(const Layout& layout, const Offsets& offsets, const Forward& in, at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    arguments.x = data<T>(in.x);
    arguments.residual = data<T>(in.residual);
    arguments.out = data<T>(out);
    arguments.mean = data<Compute<T>>(in.mean);
    arguments.first = data<Compute<T>>(in.scale);
    arguments.second = data<Compute<T>>(in.shift);
    arguments.relu = in.activation == Activation::relu;
    apply_any<Normalise, T>(layout, offsets, arguments);
  });
}

void backward_input(const Layout& layout, const Offsets& offsets, const Backward& in, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& c, at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    Arguments<T> arguments = backward_arguments<T>(in, /*computes_sign=*/true);
    arguments.out = data<T>(out);
    arguments.first = data<Compute<T>>(a);
    arguments.second = data<Compute<T>>(b);
    arguments.third = data<Compute<T>>(c);
    if (arguments.scale != nullptr) {
      apply_any<InputGradientFromInput, T>(layout, offsets, arguments);
    } else {
      apply_any<InputGradient, T>(layout, offsets, arguments);
    }
  });
}

// Elements need no channels here: the tensor is one long plane.
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(dy.device());
  dispatch(dy.scalar_type(), [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    arguments.dy = data<T>(dy);
    arguments.y = data<T>(y);
    arguments.out = data<T>(out);
    apply_any<ResidualGradient, T>({1, 1, dy.numel(), false}, {0, 1}, arguments);
  });
}

}  // namespace bnlab::kernels::cuda
