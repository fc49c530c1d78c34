// One application of a normalising layer as an autograd operation, over the slices of kernels.hpp:
//
//   forward    moments of every slice -> coefficients -> y = activation((x - mean) scale + shift + residual)
//   backward   sums of g and g (x - mean) per slice -> coefficients -> dx = a g + b (x - mean) + c
//
// What a family computes between the two sweeps (which moments normalise, what is exchanged, what the
// gradient passes through) is its NormPass; everything that it handles is [slices, channels] and small.
#pragma once

#include <torch/custom_class.h>

#include "harness/network.hpp"
#include "strategies/engine/second_derivative.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab {

// One forward pass of a site and the backward pass that belongs to it.
class NormPass : public torch::CustomClassHolder {
 public:
  explicit NormPass(kernels::Offsets offsets) : offsets_(std::move(offsets)) {}

  const kernels::Offsets& offsets() const { return offsets_; }  // to the slices, see kernels.hpp

  // What `normalise` takes. x: [rows, C, ...]; weight, bias: [C], or undefined (1 and 0).
  virtual kernels::Coefficients forward(const at::Tensor& x, const at::Tensor& weight,
                                        const at::Tensor& bias) = 0;
  virtual kernels::BackwardCoefficients backward(const kernels::Incoming& incoming,
                                                 const at::Tensor& weight) = 0;

  // What a backward pass computes from that is itself differentiated. x: in the precision of the statistics.
  // Throws Error (refused) where a gradient of a gradient is not defined.
  virtual NormFormula formula(const at::Tensor& x) const = 0;

  // Whether the gradient needs the outputs even where their sign follows from the inputs: about another mean
  // than `forward` has returned, or elsewhere.
  virtual bool needs_outputs() const { return false; }

  // What `forward` has returned.
  const kernels::Coefficients& coefficients() const { return forward_; }

 protected:
  kernels::Coefficients forward_;  // set by `forward`

 private:
  kernels::Offsets offsets_;
};

// x: [rows, C, ...]; weight, bias and residual may be undefined. In the second forward pass of a block
// (recomputation.hpp) the coefficients are those of the first. Throws Error (refused) for a weight or bias
// that has not the statistics' precision, or lies on another device than x.
at::Tensor apply_norm(const at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                      const at::Tensor& bias, Activation activation,
                      const c10::intrusive_ptr<NormPass>& norm_pass, const Pass& pass);

}  // namespace bnlab
