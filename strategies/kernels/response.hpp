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
#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/kernels.hpp"

namespace bnlab::kernels {

struct ResponseOptions {
  double eps = 0;
  at::Tensor weight = {}, bias = {}, threshold = {};  // [C]; undefined: 1, 0 and 0
  Activation activation = Activation::none;           // with a threshold: relu
};

struct Response {
  at::Tensor y = {};
  at::Tensor z = {};  // behind the activation, before tau is added; on CUDA undefined
  Coefficients k;     // each [samples, C]; neither a count nor r and d, and on CUDA no mean
};
// rows: every sample a slice. On the CPU x and residual have the precision of the statistics if there is a
// threshold, so that y is rounded once.
Response response(const at::Tensor& x, const Offsets& rows, const at::Tensor& residual,
                  const ResponseOptions& options);

struct ResponseGradients {
  at::Tensor dx = {}, dresidual = {}, dweight = {}, dbias = {},
             dthreshold = {};  // undefined: not wanted, or not there
};
// in: with z for y, or with scale and shift; on CUDA these, and the residual. k: the forward pass's.
ResponseGradients response_gradients(const Incoming& in, const at::Tensor& residual, const Coefficients& k,
                                     const ResponseOptions& options, bool with_x, bool with_residual);

namespace cuda {
void response_forward(const LayerTensors& in, const Coefficients& k, const ResponseOptions& options);
void response_backward(const LayerTensors& in, const Coefficients& k, const ResponseOptions& options,
                       const ResponseGradients& out);
}  // namespace cuda

namespace channel {

template <class T>
struct ResponseForward {
  double eps = 0;
  const T *weight = nullptr, *bias = nullptr, *threshold = nullptr;  // [C]; null: 1, 0 and 0
  CoefficientsOf<T*> out{};                                          // invstd, scale and shift [samples, C]

  ResponseForward(const ResponseOptions& options, const Coefficients& k)
      : eps(options.eps),
        weight(read<T>(options.weight)),
        bias(read<T>(options.bias)),
        threshold(read<T>(options.threshold)),
        out(written<T>(k)) {}

  // i: of a sample's channel c. square: the mean of its squares.
  BNLAB_BOTH void of_sample(int64_t i, int64_t c, double square) const {
    const T s = static_cast<T>(quotient(1.0, root(square + eps)));
    out.invstd[i] = s;
    out.scale[i] = weight == nullptr ? s : s * weight[c];
    out.shift[i] = (bias == nullptr ? T(0) : bias[c]) - (threshold == nullptr ? T(0) : threshold[c]);
  }
};

template <class T>
struct ResponseBackward {
  int64_t samples = 0, channels = 0, kept = 0;
  double count = 1;          // of positions
  const T* sums = nullptr;   // [samples, kept, C]: A, B and, if there are three, the sum of dy - g
  const T* total = nullptr;  // [C], the sum of dy, if there are two
  const T *invstd = nullptr, *weight = nullptr;
  T* b = nullptr;  // [samples, C]
  T *dweight = nullptr, *dbias = nullptr, *dthreshold = nullptr;

  ResponseBackward(int64_t positions, const at::Tensor& sums, const Coefficients& k, const at::Tensor& b,
                   const ResponseOptions& options, const ResponseGradients& to)
      : samples(sums.size(0)),
        channels(sums.size(2)),
        kept(sums.size(1)),
        count(at_least_one(static_cast<double>(positions))),
        sums(read<T>(sums)),
        invstd(read<T>(k.invstd)),
        weight(read<T>(options.weight)),
        b(written<T>(b)),
        dweight(written<T>(to.dweight)),
        dbias(written<T>(to.dbias)),
        dthreshold(written<T>(to.dthreshold)) {}

  BNLAB_BOTH void of_sample(int64_t i, int64_t c, double sum_b) const {
    const double s = static_cast<double>(invstd[i]),
                 scale = weight == nullptr ? s : s * static_cast<double>(weight[c]);
    b[i] = static_cast<T>(quotient(-scale * (s * s) * sum_b, count));
  }

  template <class Lanes = Alone>
  BNLAB_BOTH void of_parameters(int64_t c, const Lanes& team = {}) const {
    double a = 0, by_s = 0, rest = 0;
    for (int64_t n = team.lane(); n < samples; n += team.lanes()) {
      const T* own = sums + n * kept * channels + c;
      a += static_cast<double>(own[0]);
      by_s += static_cast<double>(own[channels]) * static_cast<double>(invstd[n * channels + c]);
      if (kept > 2) rest += static_cast<double>(own[2 * channels]);
    }
    a = team.sum(a);
    by_s = team.sum(by_s);
    rest = team.sum(rest);
    if (team.lane() != 0) return;
    if (dbias != nullptr) dbias[c] = static_cast<T>(a);
    if (dweight != nullptr) dweight[c] = static_cast<T>(by_s);
    if (dthreshold != nullptr)
      dthreshold[c] = static_cast<T>(kept > 2 ? rest : static_cast<double>(total[c]) - a);
  }
};

}  // namespace channel
}  // namespace bnlab::kernels
