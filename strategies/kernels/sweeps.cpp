// The public face of the sweeps: checks shapes, brings all tensors of a call to one dense layout, allocates
// the result and hands over to the CPU or to CUDA. No arithmetic happens here.
#include "strategies/kernels/kernels.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <string>

#include "harness/support/error.hpp"
#include "harness/support/kernel_count.hpp"
#include "strategies/kernels/backend.hpp"

namespace bnlab::kernels {
namespace {

using at::Tensor;

template <class... Parts>
[[noreturn]] void refuse(const char* where, const Parts&... parts) {
  throw Error(Error::Kind::usage, c10::str("kernels::", where, ": ", parts...));
}

bool is_channels_last(const Tensor& x) {
  if (x.dim() == 2) return false;
  if (x.dim() == 3) return x.transpose(1, 2).is_contiguous();
  return x.is_contiguous(x.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d);
}

void check_input(const char* where, const Tensor& x, const Offsets& offsets) {
  if (!x.defined() || x.dim() < 2 || x.dim() > 5 || x.size(1) == 0) {
    refuse(where, "expected x of 2 to 5 dimensions [rows, channels >= 1, ...], got ",
           x.defined() ? c10::str(x.sizes()) : std::string("an undefined tensor"));
  }
  const at::ScalarType dtype = x.scalar_type();
  if (dtype != at::kDouble && dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf)
    refuse(where, "expected x of float64, float32, bfloat16 or float16, got ", dtype);
  bool rising = offsets.size() >= 2 && offsets.front() == 0 && offsets.back() == x.size(0);
  for (size_t i = 1; rising && i < offsets.size(); ++i) rising = offsets[i - 1] <= offsets[i];
  if (!rising) {
    refuse(where, "expected offsets that rise from 0 to ", x.size(0), " rows, got [",
           c10::Join(", ", offsets), "]");
  }
#ifndef BNLAB_WITH_CUDA
  if (x.is_cuda()) refuse(where, "this build has no CUDA kernels, got x on ", x.device());
#endif
  if (!x.is_cuda() && !x.is_cpu()) refuse(where, "expected x on the CPU or a CUDA device, got ", x.device());
}

Layout make_dense(Tensor& x) {
  const bool contiguous = x.is_contiguous();
  const bool channels_last = !contiguous && is_channels_last(x);
  if (!contiguous && !channels_last) x = x.contiguous();
  Layout layout{.rows = x.size(0), .channels = x.size(1), .plane = 1, .channels_last = channels_last};
  for (int64_t d = 2; d < x.dim(); ++d) layout.plane *= x.size(d);
  if (layout.plane == 1) layout.channels_last = true;
  return layout;
}

// A tensor with one number per slice and channel, contiguous.
Tensor per_channel(const char* where, const char* name, const Tensor& tensor, const Tensor& x,
                   const Offsets& offsets) {
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  if (!tensor.defined() || tensor.dim() != 2 || tensor.size(0) != slices || tensor.size(1) != x.size(1) ||
      tensor.scalar_type() != statistics_type(x.scalar_type()) || tensor.device() != x.device()) {
    refuse(where, "expected ", name, " of [", slices, ", ", x.size(1), "] ", statistics_type(x.scalar_type()),
           " on ", x.device(), ", got ",
           tensor.defined() ? c10::str(tensor.sizes(), " ", tensor.scalar_type(), " on ", tensor.device())
                            : std::string("an undefined tensor"));
  }
  return tensor.contiguous();
}

// The CPU computes float16 as float32.
bool by_float(const Tensor& x) {
  return x.defined() && x.is_cpu() && x.scalar_type() == at::kHalf;
}
Tensor to_float(const Tensor& x) {
  return x.defined() ? x.to(at::kFloat) : x;
}

}  // namespace

Layout make_dense(const char* where, Tensor& x, const Offsets& offsets) {
  check_input(where, x, offsets);
  return make_dense(x);
}

Tensor like(const char* where, const char* name, const Tensor& tensor, const Tensor& x) {
  if (!tensor.defined() || tensor.sizes() != x.sizes() || tensor.scalar_type() != x.scalar_type() ||
      tensor.device() != x.device()) {
    refuse(where, "expected ", name, " like x (", x.sizes(), " ", x.scalar_type(), " on ", x.device(),
           "), got ",
           tensor.defined() ? c10::str(tensor.sizes(), " ", tensor.scalar_type(), " on ", tensor.device())
                            : std::string("an undefined tensor"));
  }
  if (tensor.strides() == x.strides()) return tensor;
  Tensor copy = at::empty_like(x);
  copy.copy_(tensor);
  return copy;
}

BackwardInputs backward_inputs(const char* where, const Tensor& dy, const Tensor& x, const Tensor& y,
                               const Offsets& offsets, const Tensor& mean, Activation activation,
                               const FromInput& from_input, Layout& layout) {
  BackwardInputs in;
  in.x = x;
  layout = make_dense(where, in.x, offsets);
  in.mean = per_channel(where, "mean", mean, x, offsets);
  in.dy = like(where, "dy", dy, in.x);
  if (activation == Activation::relu) {
    if (from_input.scale.defined()) {
      in.from_input = {.scale = per_channel(where, "scale", from_input.scale, x, offsets),
                       .shift = per_channel(where, "shift", from_input.shift, x, offsets)};
    } else {
      in.y = like(where, "y", y, in.x);
    }
  }
  return in;
}

LayerTensors layer_tensors(const char* where, const Tensor& x, const Offsets& offsets, const Tensor& residual,
                           Activation activation) {
  LayerTensors in{.offsets = offsets, .x = x, .relu = activation == Activation::relu};
  in.layout = make_dense(where, in.x, offsets);
  if (residual.defined()) in.residual = like(where, "residual", residual, in.x);
  in.out = at::empty_like(in.x);
  return in;
}

Tensor empty_gradient(const Tensor& parameter, const Tensor& x) {
  if (!parameter.defined()) return {};
  return x.numel() == 0 ? at::zeros(parameter.sizes(), parameter.options()) : at::empty_like(parameter);
}

Tensor empty_tensor(at::IntArrayRef sizes, const at::TensorOptions& options) {
  return at::empty(sizes, options);
}

Tensor empty_rows(const Tensor& x, const Offsets& offsets) {
  return at::empty({static_cast<int64_t>(offsets.size()) - 1, 1 + 2 * x.size(1)},
                   x.options().dtype(at::kDouble).memory_format({}));
}

#ifdef BNLAB_WITH_CUDA
#define BNLAB_ON_DEVICE(x, call) ((x).is_cuda() ? cuda::call : cpu::call)
#else
#define BNLAB_ON_DEVICE(x, call) (cpu::call)
#endif

Tensor moments(const Tensor& x, const Offsets& offsets) {
  const OneKernel counted;
  if (by_float(x)) return moments(to_float(x), offsets);
  Tensor dense = x;
  const Layout layout = make_dense("moments", dense, offsets);
  Tensor out = empty_rows(x, offsets);
  BNLAB_ON_DEVICE(x, moments(layout, offsets, dense, out));
  return out;
}

Tensor normalise(const Tensor& x, const Offsets& offsets, const Tensor& mean, const Tensor& scale,
                 const Tensor& shift, Activation activation, const Tensor& residual) {
  const OneKernel counted;
  const char* where = "normalise";
  check_input(where, x, offsets);
  if (by_float(x))
    return normalise(to_float(x), offsets, mean, scale, shift, activation, to_float(residual)).to(at::kHalf);
  NormaliseInputs in{
      .x = x,
      .mean = per_channel(where, "mean", mean, x, offsets),
      .scale = per_channel(where, "scale", scale, x, offsets),
      .shift = per_channel(where, "shift", shift, x, offsets),
      .residual = {},
      .activation = activation,
  };
  const Layout layout = make_dense(in.x);
  if (residual.defined()) in.residual = like(where, "residual", residual, in.x);
  Tensor out = at::empty_like(in.x);
  if (out.numel() > 0) BNLAB_ON_DEVICE(x, normalise(layout, offsets, in, out));
  return out;
}

Tensor backward_sums(const Tensor& dy, const Tensor& x, const Tensor& y, const Offsets& offsets,
                     const Tensor& mean, Activation activation, const FromInput& from_input) {
  const OneKernel counted;
  if (by_float(x)) return backward_sums(to_float(dy), to_float(x), to_float(y), offsets, mean, activation);
  Layout layout;
  const BackwardInputs in =
      backward_inputs("backward_sums", dy, x, y, offsets, mean, activation, from_input, layout);
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  Tensor out = at::empty({slices, 2, layout.channels}, in.mean.options());
  BNLAB_ON_DEVICE(x, backward_sums(layout, offsets, in, out));
  return out;
}

Tensor backward_input(const Tensor& dy, const Tensor& x, const Tensor& y, const Offsets& offsets,
                      const Tensor& mean, const Tensor& a, const Tensor& b, const Tensor& c,
                      Activation activation, const FromInput& from_input) {
  const char* where = "backward_input";
  const OneKernel counted;
  if (by_float(x)) {
    return backward_input(to_float(dy), to_float(x), to_float(y), offsets, mean, a, b, c, activation)
        .to(at::kHalf);
  }
  Layout layout;
  const BackwardInputs in = backward_inputs(where, dy, x, y, offsets, mean, activation, from_input, layout);
  Tensor out = at::empty_like(in.x);
  const Tensor dense_a = per_channel(where, "a", a, x, offsets);
  const Tensor dense_b = per_channel(where, "b", b, x, offsets);
  const Tensor dense_c = per_channel(where, "c", c, x, offsets);
  if (out.numel() > 0)
    BNLAB_ON_DEVICE(x, backward_input(layout, offsets, in, dense_a, dense_b, dense_c, out));
  return out;
}

Tensor backward_residual(const Tensor& dy, const Tensor& y, Activation activation) {
  if (activation == Activation::none) return dy;
  const OneKernel counted;
  if (by_float(dy)) return backward_residual(to_float(dy), to_float(y), activation).to(at::kHalf);
  const char* where = "backward_residual";
  check_input(where, y, {0, y.defined() && y.dim() > 0 ? y.size(0) : 0});
  Tensor dense = y;
  make_dense(dense);
  const Tensor dy_dense = like(where, "dy", dy, dense);
  Tensor out = at::empty_like(dense);
  if (out.numel() > 0) BNLAB_ON_DEVICE(dense, backward_residual(dy_dense, dense, out));
  return out;
}

}  // namespace bnlab::kernels
