// The CUDA half of the sweeps, on the host: how finely the kernels are cut, and how they are
// launched. Everything runs on the current stream; nothing is copied from or to the host.
#pragma once

#include <c10/core/DeviceGuard.h>

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
bool vectors_fit(const Layout& layout, const Arguments<T>& in) {
  for (const void* p :
       std::initializer_list<const void*>{in.x, in.dy, in.y, in.residual, in.out, in.dresidual})
    if (reinterpret_cast<uintptr_t>(p) % (kVector<T> * sizeof(T)) != 0) return false;
  return (layout.channels_last ? layout.channels : layout.plane) % kVector<T> == 0;
}

template <class Op>
void launch_apply(const Layout& layout, const Offsets& offsets, const Arguments<typename Op::T>& in) {
  const Launches plan = plan_launches(layout, offsets, Op::V, Limits());
  for (size_t k = 0; k < plan.cuts.size(); ++k) {
    const dim3 grid(plan.grid.x, plan.grid.y, plan.slices[k]);
    launch(apply<Op>, grid, plan.block, plan.cuts[k], in);
  }
}

template <class Op>
void launch_reduce(const Layout& layout, const Offsets& offsets, const Arguments<typename Op::T>& in,
                   const at::TensorOptions& options, const typename Op::Epilogue& epilogue) {
  using Part = typename Op::Part;
  const Limits limits = one_wave(layout, Op::V, sizeof(typename Op::T));
  const Launches plan = plan_launches(layout, offsets, Op::V, limits);
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1, each = slices * layout.channels;
  const int64_t parts = plan.grid.y > 1 ? each * plan.grid.y * int64_t{sizeof(Part) / sizeof(double)} : 0;
  const at::Tensor memory = empty_tensor({parts + 2 * each}, options.dtype(at::kDouble));
  Totals<Op> to{
      .parts = reinterpret_cast<Part*>(memory.data_ptr<double>()),
      .kept = reinterpret_cast<typename Op::Epilogue::Kept*>(memory.data_ptr<double>() + parts),
      .tickets = tickets((slices + 1) * plan.grid.x, options),
      .slices = static_cast<unsigned>(slices),
      .team = 0,
      .epilogue = epilogue,
  };
  const unsigned tile = Op::kRows ? plan.block.x * Op::V : plan.block.y;
  while (to.team < 5 && tile << to.team < kThreads) ++to.team;
  for (size_t k = 0; k < plan.cuts.size(); ++k) {
    const dim3 grid(plan.grid.x, plan.grid.y, plan.slices[k]);
    launch(reduce<Op>, grid, plan.block, plan.cuts[k], in, to);
  }
}

template <class F>
void with_flag(bool flag, const F& f) {
  flag ? f(std::true_type()) : f(std::false_type());
}

// Calls f with whether the channels lie side by side, and with how many neighbours a thread takes.
template <class T, class F>
void with_shape(const Layout& layout, const Arguments<T>& in, const F& f) {
  with_flag(layout.channels_last, [&](auto rows) {
    with_flag(vectors_fit(layout, in), [&](auto vectors) {
      f(rows, std::integral_constant<int, decltype(vectors)::value ? kVector<T> : 1>());
    });
  });
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

// Calls f with the tensors of a layer, in its dtype and on its device.
template <class F>
void with_layer(const LayerTensors& in, const F& f) {
  const c10::DeviceGuard guard(in.x.device());
  dispatch(in.x.scalar_type(), [&](auto arguments) {
    using T = typename decltype(arguments)::Element;
    arguments.x = data<T>(in.x);
    arguments.residual = data<T>(in.residual);
    arguments.dy = data<T>(in.dy);
    arguments.out = data<T>(in.out);
    arguments.dresidual = data<T>(in.dresidual);
    arguments.relu = in.relu;
    f(arguments);
  });
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
