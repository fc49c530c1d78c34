// The sweeps over the activations under the engine: moments, normalise, and the two halves of the backward
// pass, each over all slices of a rank in one sweep (CPU) or one launch (CUDA).
//
// x is [rows, C], [rows, C, L], [rows, C, H, W] or [rows, C, D, H, W], dense, contiguous or channels_last
// (3-D form for five dimensions), of dtype float64, float32, bfloat16 or float16. Any other layout is
// made contiguous first; results have x's dtype and memory format.
// `offsets` (S+1 entries, from 0 to rows, not decreasing) cuts the rows into S slices, which may be empty.
// A slice is what the engine calls a set: a tower or a virtual batch; in sample_norm it is a single row.
// Statistics are float64 for float64 input and float32 otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "harness/network.hpp"

namespace bnlab::kernels {

using Offsets = std::vector<int64_t>;

// Count, mean and sum of squared deviations of every slice and channel, packed for the exchange:
// float64 [S, 1 + 2C] on x's device, each row (n, mean[0..C), M2[0..C)). One numerically safe pass:
// within a block of at most a few thousand elements mean and M2 about that mean, blocks merged by
// Chan's formula in float64. An empty slice gives zeros.
at::Tensor moments(const at::Tensor& x, const Offsets& offsets);

// y = activation((x - mean) * scale + shift + residual), with mean, scale, shift: [S, C] in the
// statistics' precision; residual: undefined or like x.
at::Tensor normalise(const at::Tensor& x, const Offsets& offsets, const at::Tensor& mean,
                     const at::Tensor& scale, const at::Tensor& shift, Activation activation,
                     const at::Tensor& residual);

// What `normalise` took beside x and the mean, where no residual was added: the sign of y then follows from x, which the
// backward pass reads anyway, so that it need not read y. Undefined: it reads y.
struct FromInput {
  at::Tensor scale, shift;  // [S, C]
};

// With g = dy where y > 0 and 0 elsewhere (relu), or g = dy (none; y is then ignored):
// [S, 2, C] in the statistics' precision, sum of g and sum of g (x - mean) over each slice.
at::Tensor backward_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                         const Offsets& offsets, const at::Tensor& mean, Activation activation,
                         const FromInput& from_input = {});

// dx = a g + b (x - mean) + c, with a, b, c: [S, C] in the statistics' precision.
at::Tensor backward_input(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                          const Offsets& offsets, const at::Tensor& mean, const at::Tensor& a,
                          const at::Tensor& b, const at::Tensor& c, Activation activation,
                          const FromInput& from_input = {});

// g itself: the gradient of the residual.
at::Tensor backward_residual(const at::Tensor& dy, const at::Tensor& y, Activation activation);

// What arrives in a backward pass, and the activations that it belongs to.
struct Incoming {
  at::Tensor dy, x, y;  // y: undefined without an activation
  Offsets offsets;
  Activation activation;
  at::Tensor mean;       // that y was made with,
  FromInput from_input;  // and the rest

  at::Tensor sums(const at::Tensor& about) const {
    return backward_sums(dy, x, y, offsets, about, activation, known(about));
  }
  at::Tensor input_gradient(const at::Tensor& about, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& c) const {
    return backward_input(dy, x, y, offsets, about, a, b, c, activation, known(about));
  }
  at::Tensor g() const { return backward_residual(dy, y, activation); }

 private:
  FromInput known(const at::Tensor& about) const { return about.is_same(mean) ? from_input : FromInput{}; }
};

}  // namespace bnlab::kernels
