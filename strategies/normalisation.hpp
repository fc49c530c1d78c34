// One application of a normalising layer as an autograd operation, over slices of the batch:
//
//   forward    moments of every slice -> coefficients -> y = activation((x - mean) scale + shift + residual)
//   backward   sums of g and g (x - mean) per slice -> coefficients -> dx = a g + b (x - mean) + c
//
// What a family computes between the two sweeps (which moments normalise, what is exchanged, what the
// gradient passes through) is a Normalisation; everything it handles is [slices, channels] and small.
#pragma once

#include <torch/custom_class.h>

#include "harness/network.hpp"
#include "strategies/kernels.hpp"

namespace bnlab {

struct ForwardCoefficients {
  at::Tensor mean, scale, shift;  // [S, C], statistics' precision
};

struct BackwardCoefficients {
  at::Tensor mean, a, b, c;   // [S, C], statistics' precision
  at::Tensor dweight, dbias;  // [C]: sums over this rank's slices (data-parallel averaging finishes them)
};

// Lives from forward to backward of one application.
class Normalisation : public torch::CustomClassHolder {
 public:
  virtual bool needs_moments() const { return true; }
  // moments: as kernels::moments; undefined if not needed. weight, bias: [C], or undefined (1 and 0).
  virtual ForwardCoefficients forward(const at::Tensor& moments, const at::Tensor& weight,
                                      const at::Tensor& bias) = 0;
  // The mean about which `sums` are taken.
  virtual at::Tensor sums_mean() const = 0;
  // sums: [S, 2, C], sum of g and of g (x - sums_mean()) per slice.
  virtual BackwardCoefficients backward(const at::Tensor& sums, const at::Tensor& weight) = 0;
};

// Statistics' precision for an input of this dtype.
at::ScalarType statistics_type(at::ScalarType input);

// x: [rows, C, ...]; offsets: see kernels.hpp; weight and bias may be undefined; residual may be undefined.
at::Tensor normalise_slices(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, const kernels::Offsets& offsets, Activation activation,
                            const c10::intrusive_ptr<Normalisation>& normalisation);

}  // namespace bnlab
