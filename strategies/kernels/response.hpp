// Filter response normalisation (Singh and Krishnan 2020): each channel of a sample is divided by its root
// mean square, about zero, and the activation behind it is max(y, tau). On CUDA it is two launches forward
// and two backward, which read and write x's own type (response.cu); on the CPU the sweeps of kernels.hpp
// and the steps below.
//
// With n, m and M2 of one channel of one sample: s = 1 / sqrt(M2 / n + m^2 + eps),
//   forward    z = scale x + shift + residual, scale = gamma s, shift = beta - tau; y = max(z, 0) + tau
//   backward   a = gamma s, b = -a s^2 B / n, c = 0; dgamma = sum s B, dbeta = sum A, dtau = sum (dy - g)
// with A = sum g and B = sum g x of the sample, and g = dy where z > 0 and 0 elsewhere.
#pragma once

#include <ATen/core/Tensor.h>

#include "strategies/kernels/backend.hpp"
#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

struct ResponseOptions {
  double eps = 0;
  at::Tensor weight = {}, bias = {}, threshold = {};  // [C]; undefined: 1, 0 and 0
  Activation activation = Activation::none;           // with a threshold: relu
};

struct Response {
  at::Tensor y;
  at::Tensor z;    // behind the activation, before tau is added; on CUDA undefined
  Coefficients k;  // each [samples, C]; no r and d
};
// rows: every sample a slice. On the CPU x and residual have the precision of the statistics if there is a
// threshold, so that y is rounded once.
Response response(const at::Tensor& x, const Offsets& rows, const at::Tensor& residual,
                  const ResponseOptions& options);

struct ResponseGradients {
  at::Tensor dx, dresidual, dweight, dbias, dthreshold;  // undefined: not wanted, or not there
};
// in: with z for y, or with scale and shift; on CUDA these, and the residual. k: the forward pass's.
ResponseGradients response_gradients(const Incoming& in, const at::Tensor& residual, const Coefficients& k,
                                     const ResponseOptions& options, bool with_x, bool with_residual);

namespace cuda {
// All of one layout and dense; what is not wanted, or not there, is undefined. [samples, C]: invstd, scale
// and shift, which the forward pass writes.
struct ResponseTensors {
  at::Tensor x, residual = {}, y = {}, dy = {}, dx = {}, dresidual = {};
  at::Tensor invstd, scale, shift;
  at::Tensor weight = {}, bias = {}, threshold = {}, dweight = {}, dbias = {}, dthreshold = {};
  double eps = 0;
  bool relu = false;
};
void response_forward(const Layout& layout, const ResponseTensors& in);
void response_backward(const Layout& layout, const ResponseTensors& in);
}  // namespace cuda

}  // namespace bnlab::kernels
