// A convolution whose weight is standardised per output channel before it is used; the gradient passes
// through:
//   paper      w = (v - m) / sqrt(var + eps), var the biased variance      (Qiao et al. 2019)
//   code       w = (v - m) / (std + eps), std the unbiased deviation       (the code of that paper)
//   centred    w = v - m                                                   (Yan et al. 2020, MABN)
// with m, var and std of the values of one output channel's filter
#pragma once

#include "harness/convolution.hpp"

namespace bnlab {

enum class WeightRule { paper, code, centred };

class StandardisedConvolution : public Convolution {
 public:
  // v: [out, in, k, k], registered as `weight`, as the name is in checkpoints of plain convolutions; a site
  // that asks for a bias gets one.
  StandardisedConvolution(const ConvSite& site, const at::Tensor& v, WeightRule rule, double eps);

  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;
  at::Tensor filters() const override;  // standardised, in the layout of v

 private:
  at::Tensor standardised(const at::Tensor& filters) const;  // [out, values of a filter]

  ConvSite site_;
  WeightRule rule_;
  double eps_;
  at::Tensor v_, bias_;  // [out, in, k, k], [out] or undefined
};

}  // namespace bnlab
