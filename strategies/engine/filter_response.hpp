// Filter response normalisation (Singh and Krishnan 2020): every channel of a sample is divided by its root
// mean square; no mean is subtracted, and nothing depends on the batch. Where an activation follows, it is
// the thresholded linear unit max(y, tau) with a tau per channel that is learned:
//   y = gamma x / sqrt(nu2 + eps) + beta, nu2 = mean of x^2 over the positions of one sample and channel
//   dx = gamma s (g - x s^2 B/n), B = sum g x; dgamma = sum s B, dbeta = sum g, dtau = sum (dy - g)
// with s = 1 / sqrt(nu2 + eps), and g = dy where y > tau and 0 elsewhere
#pragma once

#include "harness/writable_layer.hpp"

namespace bnlab {

struct FilterResponseRules {
  std::string strategy;  // for messages
  double eps = 1e-6;
  bool affine = true;
  bool threshold = true;  // max(y, tau) in place of ReLU
};

class FilterResponseNorm : public WritableLayer {
 public:
  // The parameters have the options `statistics`: weight and bias [C] with affine, and threshold [C], tau,
  // where an activation follows.
  FilterResponseNorm(const NormSite& site, const FilterResponseRules& rules,
                     const at::TensorOptions& statistics);
  // Throws Error (refused) where, in training, a channel of one sample has a single value.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;
  void set_eps(double eps) override { rules_.eps = eps; }

 private:
  NormSite site_;
  FilterResponseRules rules_;
};

}  // namespace bnlab
