// What the public functions hand to a device: checked tensors that all share one dense layout, and results
// already allocated. `y` and `residual` may be undefined (no activation, no residual).
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

// The elements of a tensor, null where it is undefined.
template <class T>
T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}

// x is a dense [rows, channels, plane] array (contiguous) or [rows * plane, channels] (channels_last).
// With plane = 1 the two are the same and channels_last is set.
struct Layout {
  int64_t rows = 0;
  int64_t channels = 0;
  int64_t plane = 1;
  bool channels_last = false;
};

struct NormaliseInputs {
  at::Tensor x, mean, scale, shift, residual;
  Activation activation = Activation::none;
};

struct BackwardInputs {
  at::Tensor dy, x, y, mean;  // y defined: the gradient passes where y > 0
  FromInput from_input;       // defined: y may be computed instead of read
};

// Checks x and makes it dense; returns how it lies in memory.
Layout make_dense(const char* where, at::Tensor& x, const Offsets& offsets);
// `tensor`, with one number for each element of x, in x's strides; refused unless it is like x otherwise.
at::Tensor like(const char* where, const char* name, const at::Tensor& tensor, const at::Tensor& x);
// make_dense of all tensors of a backward pass; `layout` is set.
BackwardInputs backward_inputs(const char* where, const at::Tensor& dy, const at::Tensor& x,
                               const at::Tensor& y, const Offsets& offsets, const at::Tensor& mean,
                               Activation activation, const FromInput& from_input, Layout& layout);
// at::empty, whose header CUDA sources take long to compile.
at::Tensor empty_tensor(at::IntArrayRef sizes, const at::TensorOptions& options);
at::Tensor empty_rows(const at::Tensor& x, const Offsets& offsets);  // what `moments` gives

// What the layers of response.hpp and squash.hpp take and give on CUDA, of one layout and dense; undefined
// where it is not there, or not wanted. Forward `out` is y.
struct LayerTensors {
  Offsets offsets = {};
  Layout layout = {};
  at::Tensor x = {}, residual = {}, dy = {}, out = {}, dresidual = {};
  bool relu = false;
};
// Those of a forward pass. A backward pass sets the others by `like`.
LayerTensors layer_tensors(const char* where, const at::Tensor& x, const Offsets& offsets,
                           const at::Tensor& residual, Activation activation);
// Those of a parameter's gradient: undefined without one, and 0 where x has no elements.
at::Tensor empty_gradient(const at::Tensor& parameter, const at::Tensor& x);

Coefficients empty_coefficients(int64_t sets, int64_t channels, const at::TensorOptions& options,
                                bool with_count, bool with_renorm);
BackwardCoefficients empty_backward_coefficients(const Coefficients& forward, const at::Tensor& sums);

// forward_coefficients and backward_coefficients as tensors, with their results allocated. `on_pointers`
// gives the function of a channel (float or double), which is run by itself, or on CUDA at the end of the
// sweep that makes its input.
struct ForwardStep {
  at::Tensor rows;  // of moments, one for each group of sets
  channel::Grouping grouping;
  NormOptions options;
  Coefficients out;

  template <class T>
  channel::Forward<T> on_pointers() const;
};

struct BackwardStep {
  Coefficients forward;
  at::Tensor local_sums, group_sums;
  int64_t summands = 1;  // consecutive rows of group_sums that are to be added up for a group
  channel::Grouping grouping;
  bool mean_only = false;
  at::Tensor weight;
  BackwardCoefficients out;

  template <class T>
  channel::Backward<T> on_pointers() const;
};

// update_running, likewise.
template <class T>
channel::UpdateRunning<T> on_pointers(const RunningUpdate& update, const at::Tensor& rows);

namespace cpu {
void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out);
void normalise(const Layout& layout, const Offsets& offsets, const NormaliseInputs& in, at::Tensor& out);
void backward_sums(const Layout& layout, const Offsets& offsets, const BackwardInputs& in, at::Tensor& out);
void backward_input(const Layout& layout, const Offsets& offsets, const BackwardInputs& in,
                    const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, at::Tensor& out);
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out);
}  // namespace cpu

// Built only with BNLAB_WITH_CUDA. Every function works on the current stream and never waits for it. A sweep
// that sums runs the steps that it is given at the end of its own launch, unless x has no elements.
namespace cuda {
void moments(const Layout& layout, const Offsets& offsets, const at::Tensor& x, at::Tensor& out,
             const ForwardStep* forward = nullptr, const RunningUpdate* update = nullptr);
void normalise(const Layout& layout, const Offsets& offsets, const NormaliseInputs& in, at::Tensor& out);
void backward_sums(const Layout& layout, const Offsets& offsets, const BackwardInputs& in, at::Tensor& out,
                   const BackwardStep* backward = nullptr);
void backward_input(const Layout& layout, const Offsets& offsets, const BackwardInputs& in,
                    const at::Tensor& a, const at::Tensor& b, const at::Tensor& c, at::Tensor& out);
void backward_residual(const at::Tensor& dy, const at::Tensor& y, at::Tensor& out);
}  // namespace cuda

}  // namespace bnlab::kernels
