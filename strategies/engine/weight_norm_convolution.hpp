// A convolution whose weight is a direction times a gain per output channel:
//   w = gain v / norm(v); y = conv(x, w) + bias, or conv(x, w) - mean + bias
// with gain and bias set from the first batch, so that every unit starts with mean 0 and a given deviation
// (Salimans and Kingma 2016):
//   t = conv(x, v / norm(v)), gain = init_scale / std(t), bias = -mean(t) gain
// where the mean is subtracted, the bias starts as 0
#pragma once

#include <memory>
#include <optional>

#include "harness/convolution.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

class WeightNormConvolution : public Convolution {
 public:
  // v: [out, in, k, k], its options are those of all parameters. gain starts as norm(v), where w is v, and
  // bias as 0. init_scale: initialise from the data of training step 0; nothing: do not. centre: the layer
  // that subtracts the mean and keeps it as buffer running_mean; null: none. `communicator` outlives
  // the layer.
  WeightNormConvolution(const ConvSite& site, const at::Tensor& v, std::optional<double> init_scale,
                        std::shared_ptr<Layer> centre, Communicator& communicator);

  // Throws Error (refused) where an output channel to be initialised does not vary.
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;
  at::Tensor filters() const override;  // gain v / |v|

 private:
  at::Tensor norm() const;  // [out], per filter of v
  void initialise(const at::Tensor& x);
  void check_spread(const at::Tensor& mean, const at::Tensor& deviation) const;

  ConvSite site_;
  std::optional<double> init_scale_;
  std::shared_ptr<Layer> centre_;
  Communicator& communicator_;
  at::Tensor v_, gain_, bias_;  // [out, in, k, k], [out], [out]
};

}  // namespace bnlab
