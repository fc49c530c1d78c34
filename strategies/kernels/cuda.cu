// The CUDA half of the sweeps, on the host: how finely the kernels of cuda.cuh are cut, and how they are
// launched. Everything runs on the current stream; nothing is copied from or to the host.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/cuda.cuh"
#include "strategies/kernels/launch.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int64_t kMinimumSteps = 4;       // of a thread, before another block is worth it
constexpr int64_t kMaximumSteps = 1024;    // of a thread, or (planes) up to twice that: it sums in float32
constexpr int64_t kMaximumParts = 65535;   // what gridDim.y may be
constexpr int64_t kSmallBytes = 16 << 20;  // below, a sum takes no longer than to merge its parts

// The launches of one kernel: the same grid but for the number of slices. Shapes and the GPU decide it,
// so the last bits of a sum may differ between GPU models and between placements.
struct Launches {
  dim3 grid, block;  // grid.z is set per cut
  std::vector<Cut> cuts;
  std::vector<unsigned> slices;
};

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The smallest power of two that is at least n, but at most `limit`, a power of two.
int64_t power_of_two(int64_t n, int64_t limit) {
  int64_t p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

// How finely a kernel may be cut. These are the limits of kernels that do not sum, which may be cut at will.
struct Limits {
  int64_t width = 32;             // threads side by side
  int64_t blocks = 2048;          // wanted in all: enough to fill the GPU
  int64_t parts = kMaximumParts;  // of a slice, but for sums of more than kMaximumSteps
};

Launches plan_launches(const Layout& layout, const Offsets& offsets, int vector, const Limits& limits) {
  Launches plan;
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  int64_t rows = 0;  // of the longest slice
  for (int64_t s = 0; s < slices; ++s) rows = std::max(rows, offsets[s + 1] - offsets[s]);
  const bool by_rows = layout.channels_last;
  const int64_t across = ceil_divide(by_rows ? layout.channels : layout.plane, vector);
  const int64_t width = power_of_two(across, by_rows ? limits.width : kThreads);
  const int64_t height = kThreads / width;
  const int64_t tiles = by_rows ? ceil_divide(across, width) : layout.channels;
  const int64_t steps = by_rows ? ceil_divide(rows * layout.plane, height)
                                : ceil_divide(rows, height) * ceil_divide(across, width);
  const int64_t to_fill = limits.blocks / (tiles * std::min<int64_t>(slices, kMaxSlices));
  const int64_t wanted = std::clamp<int64_t>(
      std::max(std::min(to_fill, limits.parts), ceil_divide(steps, kMaximumSteps)), 1, kMaximumParts);
  int64_t plane_parts = 1, row_parts = 1;
  if (by_rows) {
    row_parts = std::clamp<int64_t>(ceil_divide(rows * layout.plane, height * kMinimumSteps), 1, wanted);
  } else {
    plane_parts = std::clamp<int64_t>(ceil_divide(across, width * kMinimumSteps), 1, wanted);
    row_parts = std::clamp<int64_t>(ceil_divide(rows, height), 1, std::max<int64_t>(1, wanted / plane_parts));
  }
  TORCH_CHECK(tiles <= 0x7fffffff, "kernels: too many channels for one launch: ", layout.channels);
  plan.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(row_parts * plane_parts), 1);
  plan.block = dim3(static_cast<unsigned>(width), static_cast<unsigned>(height), 1);
  for (int64_t first = 0; first < slices; first += kMaxSlices) {
    const int64_t count = std::min<int64_t>(kMaxSlices, slices - first);
    Cut cut{};
    cut.channels = layout.channels;
    cut.plane = layout.plane;
    cut.first_slice = first;
    cut.plane_parts = plane_parts;
    std::copy_n(offsets.begin() + first, count + 1, cut.offset);
    plan.cuts.push_back(cut);
    plan.slices.push_back(static_cast<unsigned>(count));
  }
  return plan;
}

// Neighbours that a thread takes at once: 16 bytes, or 8 of the types of 16 bits, of which 8 would need more
// constants and sums than a thread has registers for.
template <class T>
constexpr int kVector = sizeof(T) == 8 ? 2 : 4;

// Whether whole vectors of T lie aligned in every tensor of the call.
template <class T>
bool vectors_fit(const Layout& layout, std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<uintptr_t>(p) % (kVector<T> * sizeof(T)) != 0) return false;
  return (layout.channels_last ? layout.channels : layout.plane) % kVector<T> == 0;
}

template <class T>
bool vectors_fit(const Layout& layout, const Arguments<T>& in) {
  return vectors_fit<T>(layout, {in.x, in.dy, in.y, in.residual, in.out});
}

// Kernels that sum are cut into one wave of blocks, and into so few parts of a slice that the last block
// merges them quickly: of a small tensor into 64, as long as every processor has a block. Its tile is at most
// 64 channels wide.
Limits one_wave(const Layout& layout, int vector, int64_t element_bytes) {
  int device = 0, processors = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  Limits limits;
  limits.width = 64 / vector;
  limits.blocks = int64_t{kBlocksPerProcessor} * processors;
  limits.parts = 256;
  if (layout.rows * layout.channels * layout.plane * element_bytes < kSmallBytes) {
    const int64_t tiles = layout.channels_last ? ceil_divide(layout.channels, 64) : layout.channels;
    limits.parts = std::clamp<int64_t>(ceil_divide(processors, tiles), 64, 256);
  }
  return limits;
}

// At least `count` tickets that are 0 on the current stream; every kernel leaves them so. The launches of a
// thread on one stream share them. Each thread has its own, so that none waits for another's allocation.
unsigned* tickets(int64_t count, const at::TensorOptions& options) {
  thread_local auto& of_stream =
      *new std::map<std::pair<int64_t, int64_t>, at::Tensor>;  // CUDA may end before the thread does
  const auto stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor& shared = of_stream[{stream.device_index(), stream.id()}];
  if (!shared.defined() || shared.numel() < count)
    shared = at::zeros({std::max<int64_t>(kMinimumTickets, count)}, options.dtype(at::kInt));
  return reinterpret_cast<unsigned*>(shared.data_ptr<int>());
}

template <template <class, bool, int> class Op, class T, bool kRows, int V>
void launch_apply(const Layout& layout, const Offsets& offsets, const Arguments<T>& in) {
  const Launches plan = plan_launches(layout, offsets, V, Limits());
  for (size_t k = 0; k < plan.cuts.size(); ++k) {
    const dim3 grid(plan.grid.x, plan.grid.y, plan.slices[k]);
    launch(apply<Op<T, kRows, V>, T, kRows, V>, grid, plan.block, plan.cuts[k], in);
  }
}

template <template <class, bool, int> class Op, class T, bool kRows, int V>
void launch_reduce(const Layout& layout, const Offsets& offsets, const Arguments<T>& in, at::Tensor& out,
                   const typename Op<T, kRows, V>::Epilogue& epilogue) {
  using Kernel = Op<T, kRows, V>;
  const Launches plan = plan_launches(layout, offsets, V, one_wave(layout, V, sizeof(T)));
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  const at::Tensor parts =
      at::empty({slices, plan.grid.y, 1 + 2 * layout.channels}, out.options().dtype(at::kDouble));
  Totals<Kernel> to;
  to.parts = parts.data_ptr<double>();
  to.tickets = tickets((slices + 1) * plan.grid.x, out.options());
  to.slices = static_cast<unsigned>(slices);
  to.out = out.data_ptr<typename Kernel::Result>();
  to.epilogue = epilogue;
  for (size_t k = 0; k < plan.cuts.size(); ++k) {
    const dim3 grid(plan.grid.x, plan.grid.y, plan.slices[k]);
    launch(reduce<Kernel, T, kRows, V>, grid, plan.block, plan.cuts[k], in, to);
  }
}

template <template <class, bool, int> class Op, class T>
void apply_any(const Layout& layout, const Offsets& offsets, const Arguments<T>& in) {
  constexpr int V = kVector<T>;
  const bool vectors = vectors_fit(layout, in);
  if (layout.channels_last)
    (vectors ? launch_apply<Op, T, true, V> : launch_apply<Op, T, true, 1>)(layout, offsets, in);
  else
    (vectors ? launch_apply<Op, T, false, V> : launch_apply<Op, T, false, 1>)(layout, offsets, in);
}

template <template <class, bool, int> class Op, class T, bool kRows, class Epilogue>
void reduce_in(const Layout& layout, const Offsets& offsets, const Arguments<T>& in, at::Tensor& out,
               const Epilogue& epilogue) {
  constexpr int V = kVector<T>;
  (vectors_fit(layout, in) ? launch_reduce<Op, T, kRows, V>
                           : launch_reduce<Op, T, kRows, 1>)(layout, offsets, in, out, epilogue);
}

template <template <class, bool, int> class Op, class T, class Epilogue>
void reduce_any(const Layout& layout, const Offsets& offsets, const Arguments<T>& in, at::Tensor& out,
                const Epilogue& epilogue) {
  (layout.channels_last ? reduce_in<Op, T, true, Epilogue>
                        : reduce_in<Op, T, false, Epilogue>)(layout, offsets, in, out, epilogue);
}

template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// y is not read where its sign can be computed.
template <class T>
Arguments<T> backward_arguments(const BackwardInputs& in) {
  Arguments<T> arguments;
  arguments.x = data<T>(in.x);
  arguments.dy = data<T>(in.dy);
  arguments.mean = data<Compute<T>>(in.mean);
  if (in.from_input.scale.defined()) {
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
             const ForwardStep* forward, const RunningUpdate* update) {
  const c10::cuda::CUDAGuard guard(x.device());
  if (x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(x.scalar_type(), [&](auto in) {
    using T = typename decltype(in)::Element;
    using A = Compute<T>;
    in.x = data<T>(x);
    MomentsEpilogue<A> epilogue;
    if (forward != nullptr) {
      epilogue.given = true;
      epilogue.forward = forward->on_pointers<A>();
      epilogue.updates = update != nullptr;
      if (update != nullptr) epilogue.update = on_pointers<A>(*update, out);
    }
    reduce_any<MomentsOperation, T>(layout, offsets, in, out, epilogue);
  });
}

void backward_sums(const Layout& layout, const Offsets& offsets, const BackwardInputs& in, at::Tensor& out,
                   const BackwardStep* backward) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  if (in.x.numel() == 0) {
    out.zero_();
    return;
  }
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    using A = Compute<T>;
    SumsEpilogue<A> epilogue;
    if (backward != nullptr) {
      epilogue.given = true;
      epilogue.backward = backward->on_pointers<A>();
    }
    const Arguments<T> arguments = backward_arguments<T>(in);
    if (arguments.scale == nullptr)
      reduce_any<Sums, T>(layout, offsets, arguments, out, epilogue);
    else
      reduce_any<SumsFromInput, T>(layout, offsets, arguments, out, epilogue);
  });
}

void normalise(const Layout& layout, const Offsets& offsets, const NormaliseInputs& in, at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    arguments.x = data<T>(in.x);
    arguments.residual = data<T>(in.residual);
    arguments.out = data<T>(out);
    arguments.mean = data<Compute<T>>(in.mean);
    arguments.scale = data<Compute<T>>(in.scale);
    arguments.shift = data<Compute<T>>(in.shift);
    arguments.relu = in.activation == Activation::relu;
    apply_any<Normalise, T>(layout, offsets, arguments);
  });
}

void backward_input(const Layout& layout, const Offsets& offsets, const BackwardInputs& in,
                    const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, at::Tensor& out) {
  const c10::cuda::CUDAGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto empty) {
    using T = typename decltype(empty)::Element;
    Arguments<T> arguments = backward_arguments<T>(in);
    arguments.out = data<T>(out);
    arguments.a = data<Compute<T>>(a);
    arguments.b = data<Compute<T>>(b);
    arguments.c = data<Compute<T>>(c);
    if (arguments.scale != nullptr)
      apply_any<InputGradientFromInput, T>(layout, offsets, arguments);
    else
      apply_any<InputGradient, T>(layout, offsets, arguments);
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
    Layout layout;
    layout.rows = layout.channels = 1;
    layout.plane = dy.numel();
    apply_any<ResidualGradient, T>(layout, {0, 1}, arguments);
  });
}

}  // namespace bnlab::kernels::cuda
