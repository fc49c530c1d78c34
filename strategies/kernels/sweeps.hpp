// The sweeps over the activations, each over all slices of a rank at once (one launch on CUDA):
//
//   moments             n, mean m and M2 = sum (x - m)^2 of each channel
//   normalise           y = activation((x - mean) scale + shift + residual)
//   backward_sums       A = sum g and B = sum g (x - mean) of each channel
//   backward_input      dx = a g + b (x - mean) + c
//   backward_residual   g, the gradient of the residual
//
// with g = dy where y > 0 and 0 elsewhere (relu), or g = dy (none; y is then ignored). What mean, scale and
// shift are, and a, b and c, is said in coefficients.hpp.
//
// x is [rows, C], [rows, C, L], [rows, C, H, W] or [rows, C, D, H, W], dense, contiguous or channels_last
// (3-D form for five dimensions), of dtype float64, float32, bfloat16 or float16. Any other layout is made
// contiguous first; results have x's dtype and memory format. `offsets` (S + 1 entries, from 0 to rows, not
// decreasing) cuts the rows into S slices, which may be empty: the sets of the engine (towers or virtual
// batches), or single rows where each sample is normalised by itself. Statistics and coefficients are float64
// for float64 input and float32 otherwise.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "harness/activation.hpp"

namespace bnlab::kernels {

using Offsets = std::vector<int64_t>;

// The moments of every slice, packed for the exchange: float64 [S, 1 + 2C] on x's device, each row (n,
// mean[0..C), M2[0..C)). One numerically safe pass: within a block of at most a few thousand elements mean
// and M2 about that mean, blocks merged by Chan's formula in float64. An empty slice gives zeros.
at::Tensor moments(const at::Tensor& x, const Offsets& offsets);

// mean, scale, shift: [S, C] in the statistics' precision; residual: undefined or like x.
at::Tensor normalise(const at::Tensor& x, const Offsets& offsets, const at::Tensor& mean,
                     const at::Tensor& scale, const at::Tensor& shift, Activation activation,
                     const at::Tensor& residual);

// The scale and shift that `normalise` took, where no residual was added. The sign of y then follows from x,
// which the backward pass reads anyway, so that y may be undefined (not in float16 on the CPU). Undefined: it
// reads y.
struct FromInput {
  at::Tensor scale = {}, shift = {};  // [S, C]
};

// Returns A and B of every slice: [S, 2, C] in the statistics' precision.
at::Tensor backward_sums(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                         const Offsets& offsets, const at::Tensor& mean, Activation activation,
                         const FromInput& from_input = {});

// Returns dx; a, b, c: [S, C] in the statistics' precision.
at::Tensor backward_input(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                          const Offsets& offsets, const at::Tensor& mean, const at::Tensor& a,
                          const at::Tensor& b, const at::Tensor& c, Activation activation,
                          const FromInput& from_input = {});

at::Tensor backward_residual(const at::Tensor& dy, const at::Tensor& y, Activation activation);

// The gradient that arrives in a backward pass, and what the forward pass took and gave.
struct Incoming {
  at::Tensor dy, x, y;  // y: undefined without an activation, or where its sign follows from x
  Offsets offsets;
  Activation activation = Activation::none;
  at::Tensor mean;       // [S, C], as `normalise` took it
  FromInput from_input;  // its scale and shift, which belong to this mean

  // about: the mean that the sums are taken about.
  at::Tensor sums(const at::Tensor& about) const {
    return backward_sums(dy, x, y, offsets, about, activation, known(about));
  }
  at::Tensor input_gradient(const at::Tensor& about, const at::Tensor& a, const at::Tensor& b,
                            const at::Tensor& c) const {
    return backward_input(dy, x, y, offsets, about, a, b, c, activation, known(about));
  }
  at::Tensor g() const { return backward_residual(dy, y, activation); }

 private:
  // About another mean, the sign of y does not follow.
  FromInput known(const at::Tensor& about) const { return about.is_same(mean) ? from_input : FromInput{}; }
};

}  // namespace bnlab::kernels
