// none: no normalisation. Norm sites only add the residual and apply the activation; every convolution has a
// bias instead.
#include <torch/types.h>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/identity.hpp"

namespace bnlab::none {

class None : public Strategy {
 public:
  struct Options {
    void describe(OptionVisitor&) {}
    bool makes_convolutions() const { return true; }  // with a bias
  };

  None(const Options&, const Context& context) : Strategy(context) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override { return std::make_shared<Identity>(site); }

  StepWork work(const Step&) const override { return {}; }

  std::shared_ptr<Layer> conv(const ConvSite& site) override {
    ConvSite with_bias = site;
    with_bias.norm_follows = false;
    return Strategy::conv(with_bias);
  }
};

const Registered<Strategy> entry{
    {.name = "none",
     .summary = "no normalisation; convolutions get a bias",
     .source = "VGG-16 and older networks",
     .formula = "y = activation(x + residual), x = w * input + b from the convolution",
     .exchanges = "none",
     .use = "as the control: what normalisation buys, and what it costs per step",
     .limits = "it wants a small learning rate, and deep networks may not train at all"},
    make<Strategy, None>};

}  // namespace bnlab::none
