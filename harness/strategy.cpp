#include "harness/strategy.hpp"

#include <torch/types.h>

#include <cmath>

#include "harness/convolution.hpp"
#include "harness/support/random.hpp"

namespace bnlab {
namespace {

class PlainConvolution : public Convolution {
 public:
  PlainConvolution(const ConvSite& site, uint64_t seed, const at::TensorOptions& options) : site_(site) {
    weight_ = register_parameter("weight", initial_weights(site, seed).to(options));
    if (site.has_bias()) bias_ = register_parameter("bias", at::zeros({site.out}, options));
  }

  at::Tensor forward(at::Tensor x, at::Tensor, const Pass&) override {
    return site_.convolved(x, weight_, bias_);
  }
  at::Tensor filters() const override { return weight_; }

 private:
  ConvSite site_;
  at::Tensor weight_, bias_;
};

}  // namespace

at::Tensor initial_weights(const ConvSite& site, uint64_t seed) {
  if (site.weight.defined()) return site.weight.to(at::kCPU, at::kDouble);
  at::Tensor weight = at::empty({site.out, site.in, site.kernel, site.kernel}, at::kDouble);
  Stream stream(seed, "weights/" + site.name);
  const int64_t fan = (site.fan == Fan::in ? site.in : site.out) * site.kernel * site.kernel;
  const double deviation = std::sqrt(2.0 / static_cast<double>(fan));
  double* values = weight.mutable_data_ptr<double>();
  for (int64_t i = 0; i < weight.numel(); ++i) values[i] = deviation * stream.normal();
  return weight;
}

Part Network::part_of(const std::string& name) const {
  const std::string beginning = name.substr(0, name.find('.'));
  return beginning == "head" ? Part::head : beginning == "backbone" ? Part::backbone : Part::features;
}

std::shared_ptr<Layer> Strategy::conv(const ConvSite& site) {
  return std::make_shared<PlainConvolution>(
      site, context_.seed, at::TensorOptions().device(context_.device).dtype(context_.dtype));
}

Outputs Strategy::forward(Network& network, const at::Tensor& images, const Pass& pass) {
  return network.head(network.features(images, pass), pass);
}

bool Strategy::trainable(const std::string&, const Step&) const {
  return true;
}

bool repeats(const Strategy& strategy, const Step& step) {
  if (step.index == 0) return false;
  const StepWork work = strategy.work(step);
  return work.replayable && work == strategy.work({step.index - 1, step.total});
}

}  // namespace bnlab
