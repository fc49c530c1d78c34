// What the public kernels hand to a device: checked tensors that all share one dense layout, and
// results already allocated. `y` and `residual` may be undefined (no activation, no residual).
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

// x is a dense [rows, channels, plane] array (contiguous) or [rows * plane, channels] (channels_last).
// With plane = 1 the two are the same and channels_last is set.
struct Layout {
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t plane = 1;
  bool channels_last = false;
};

struct Forward {
  at::Tensor x, mean, scale, shift, residual;
  Activation activation;
};

struct Backward {
  at::Tensor dy, x, y, mean;  // y defined: the gradient passes where y > 0
};

namespace cpu {
void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out);
void normalise(const Layout& layout, const Offsets& offsets, const Forward& in, at::Tensor& out);
void backward_sums(const Layout& layout, const Offsets& offsets, const Backward& in, at::Tensor& out);
void backward_input(const Layout& layout, const Offsets& offsets, const Backward& in, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& c, at::Tensor& out);
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out);
}  // namespace cpu

// Built only with BNLAB_WITH_CUDA. Every function works on the current stream and never waits for it.
namespace cuda {
void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out);
void normalise(const Layout& layout, const Offsets& offsets, const Forward& in, at::Tensor& out);
void backward_sums(const Layout& layout, const Offsets& offsets, const Backward& in, at::Tensor& out);
void backward_input(const Layout& layout, const Offsets& offsets, const Backward& in, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& c, at::Tensor& out);
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out);
}  // namespace cuda

}  // namespace bnlab::kernels
