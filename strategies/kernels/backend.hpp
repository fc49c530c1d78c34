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
  FromInput from_input;       // defined: y may be computed instead of read
};

// x checked and made dense, and how it lies in memory.
Layout settle(const char* where, at::Tensor& x, const Offsets& offsets);
Backward settle_backward(const char* where, const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                         const Offsets& offsets, const at::Tensor& mean, Activation activation,
                         const FromInput& from_input, Layout& layout);
at::Tensor empty_rows(const at::Tensor& x, const Offsets& offsets);  // what `moments` gives

namespace cpu {
void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out);
void normalise(const Layout& layout, const Offsets& offsets, const Forward& in, at::Tensor& out);
void backward_sums(const Layout& layout, const Offsets& offsets, const Backward& in, at::Tensor& out);
void backward_input(const Layout& layout, const Offsets& offsets, const Backward& in, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& c, at::Tensor& out);
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out);
}  // namespace cpu

// Built only with BNLAB_WITH_CUDA. Every function works on the current stream and never waits for it. The sums take
// along the steps that follow them, if given (finish_steps.hpp, finish.hpp), where x has elements.
struct ForwardStep;
struct BackwardStep;
struct PairStep;
namespace cuda {
void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out,
             const ForwardStep* forward = nullptr, const PairStep* pair = nullptr);
void normalise(const Layout& layout, const Offsets& offsets, const Forward& in, at::Tensor& out);
void backward_sums(const Layout& layout, const Offsets& offsets, const Backward& in, at::Tensor& out,
                   const BackwardStep* backward = nullptr);
void backward_input(const Layout& layout, const Offsets& offsets, const Backward& in, const at::Tensor& a,
                    const at::Tensor& b, const at::Tensor& c, at::Tensor& out);
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out);
}  // namespace cuda

}  // namespace bnlab::kernels
