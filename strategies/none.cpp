// none: no normalisation. Norm sites only add the residual and apply the activation; every convolution
// has a bias instead.
#include <torch/types.h>

#include "harness/registry.hpp"
#include "harness/strategy.hpp"

namespace bnlab {
namespace {

class Identity : public Layer {
 public:
  explicit Identity(Activation activation) : activation_(activation) {}
  at::Tensor forward(at::Tensor x, at::Tensor residual) override {
    if (residual.defined()) {
      x = x + residual;
    }
    return activation_ == Activation::relu ? x.relu() : x;
  }

 private:
  Activation activation_;
};

class None : public Strategy {
 public:
  None(const Json&, const Context& context) : Strategy(context) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override {
    return std::make_shared<Identity>(site.activation);
  }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    ConvSite with_bias = site;
    with_bias.norm_follows = false;
    return Strategy::conv(with_bias);
  }
};

const Registered<Strategy> entry{
    {"none", "no normalisation; convolutions get a bias", {}, "VGG-16 and older networks"},
    make<Strategy, None>};

}  // namespace
}  // namespace bnlab
