// The CUDA half of the sweeps, on the host: how finely the kernels are cut, and how they are
// launched. Everything runs on the current stream; nothing is copied from or to the host.
#pragma once

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <initializer_list>
#include <vector>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/launch.cuh"
#include "strategies/kernels/reduce.cuh"

namespace bnlab::kernels::cuda {

// The launches of one kernel: the same grid but for the number of slices. Shapes and the GPU decide it,
// so the last bits of a sum may differ between GPU models and between placements.
struct Launches {
  dim3 grid, block;  // grid.z is set per cut
  std::vector<Cut> cuts;
  std::vector<unsigned> slices;
};

constexpr int64_t kMaximumParts = 65535;  // what gridDim.y may be

// How finely a kernel may be cut. These are the limits of kernels that do not sum, which may be cut at will.
struct Limits {
  int64_t width = 32;             // threads side by side
  int64_t blocks = 2048;          // wanted in all: enough to fill the GPU
  int64_t parts = kMaximumParts;  // of a slice, but for sums of more than kMaximumSteps
};

Launches plan_launches(const Layout& layout, const Offsets& offsets, int vector, const Limits& limits);

// Kernels that sum are cut into one wave of blocks, and into so few parts of a slice that the last block
// merges them quickly: of a small tensor into 64, as long as every other processor has a block.
Limits one_wave(const Layout& layout, int vector, int64_t element_bytes);

// At least `count` tickets that are 0 on the current stream; every kernel leaves them so. The launches of a
// thread on one stream share them. Each thread has its own, so that none waits for another's allocation.
unsigned* tickets(int64_t count, const at::TensorOptions& options);

namespace {

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
  using Part = typename Kernel::Part;
  const Launches plan = plan_launches(layout, offsets, V, one_wave(layout, V, sizeof(T)));
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1, each = slices * layout.channels;
  const int64_t parts = plan.grid.y > 1 ? each * plan.grid.y * int64_t{sizeof(Part) / sizeof(double)} : 0;
  const at::Tensor memory = at::empty({parts + 2 * each}, out.options().dtype(at::kDouble));
  Totals<Kernel> to;
  to.parts = reinterpret_cast<Part*>(memory.data_ptr<double>());
  to.kept = reinterpret_cast<typename Kernel::Epilogue::Kept*>(memory.data_ptr<double>() + parts);
  to.tickets = tickets((slices + 1) * plan.grid.x, out.options());
  to.slices = static_cast<unsigned>(slices);
  const unsigned tile = kRows ? plan.block.x * V : plan.block.y;
  for (to.team = 0; to.team < 5 && tile << to.team < kThreads;) ++to.team;
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

}  // namespace
}  // namespace bnlab::kernels::cuda
