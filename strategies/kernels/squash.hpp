// The layer of dynamic_tanh, y = activation(gamma tanh(alpha x) + beta + residual), alpha being one number:
// on CUDA one launch forward and two backward, which read and write x's own type (squash.cu); on the CPU
// operations of LibTorch around the sweeps of kernels.hpp, in the precision of the statistics.
//   with t = tanh(alpha x) and u = gamma g (1 - t^2): dx = alpha u, dalpha = sum u x, dgamma = sum g t,
//   dbeta = sum g
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

struct SquashOptions {
  at::Tensor alpha;                   // [1]
  at::Tensor weight = {}, bias = {};  // [C]; undefined: 1 and 0
  Activation activation = Activation::none;
};

struct Squash {
  at::Tensor y;
  at::Tensor t;  // tanh(alpha x); on CUDA undefined: the backward pass computes it once more
};
Squash squash(const at::Tensor& x, const at::Tensor& residual, const SquashOptions& options);

struct SquashGradients {
  at::Tensor dx = {}, dresidual = {}, dalpha = {}, dweight = {},
             dbias = {};  // undefined: not wanted, or not there
};
// y, t: the forward pass's; y may be undefined without an activation.
SquashGradients squash_gradients(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& y,
                                 const at::Tensor& t, const SquashOptions& options, bool with_residual);

namespace cuda {
void squash_forward(const LayerTensors& in, const SquashOptions& options);
// in.residual: y, if its sign is read and not computed from x.
void squash_backward(const LayerTensors& in, const SquashOptions& options, const SquashGradients& out);
}  // namespace cuda

}  // namespace bnlab::kernels
