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
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

struct ForwardCoefficients {
  at::Tensor mean, scale, shift;  // [S, C], statistics' precision
};

struct BackwardCoefficients {
  at::Tensor mean, a, b, c;   // [S, C], statistics' precision
  at::Tensor dweight, dbias;  // [C]: sums over this rank's slices (data-parallel averaging finishes them)
};

// What arrives in backward, and the activations it belongs to.
struct Incoming {
  at::Tensor dy, x, y;  // y: undefined without an activation
  kernels::Offsets offsets;
  Activation activation;

  // [S, 2, C]: sum of g and of g (x - mean) per slice, where g is dy behind the activation.
  at::Tensor sums(const at::Tensor& mean) const;
  at::Tensor g() const;  // like x
};

// Lives from forward to backward of one application.
class Normalisation : public torch::CustomClassHolder {
 public:
  // weight, bias: [C], or undefined (1 and 0).
  virtual ForwardCoefficients forward(const at::Tensor& x, const kernels::Offsets& offsets,
                                      const at::Tensor& weight, const at::Tensor& bias) = 0;
  virtual BackwardCoefficients backward(const Incoming& incoming, const at::Tensor& weight) = 0;
};

// y = gamma (x - mean) invstd + beta as coefficients; mean, invstd: [S, C].
ForwardCoefficients affine_coefficients(const at::Tensor& mean, const at::Tensor& invstd,
                                        const at::Tensor& weight, const at::Tensor& bias);

// x: [rows, C, ...]; offsets: see kernels.hpp; weight and bias may be undefined; residual may be undefined.
at::Tensor normalise_slices(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                            const at::Tensor& bias, const kernels::Offsets& offsets, Activation activation,
                            const c10::intrusive_ptr<Normalisation>& normalisation);

}  // namespace bnlab
