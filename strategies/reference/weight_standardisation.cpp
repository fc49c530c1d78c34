// Reference of weight_standardisation, whose site is a convolution; its norm sites are the base's.
//   w = (v - m) / sqrt(var + eps) per output channel, or (v - m) / (std + eps) with the unbiased deviation
#include <torch/types.h>

#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

at::Tensor standardised_filters(const at::Tensor& v, const Json& options) {
  const at::Tensor filters = v.reshape({v.size(0), -1});
  const double eps = options.at("eps").get<double>(), n = static_cast<double>(filters.size(1));
  const at::Tensor centred = filters - filters.sum(1, true) / n;
  const at::Tensor squares = (centred * centred).sum(1, true);
  const at::Tensor divisor =
      options.at("form") == "paper" ? (squares / n + eps).sqrt() : (squares / (n - 1)).sqrt() + eps;
  return (centred / divisor).reshape(v.sizes());
}

class WeightStandardisation : public Reference {
 public:
  LayerAnswer answer(const LayerCase& c) const override {
    const std::string base = c.strategy.at("base").at("name").get<std::string>();
    if (base == "none" || base == "weight_norm" || base == "weight_standardisation")
      refuse("weight_standardisation: the base does not normalise activations");
    const at::Tensor v = leaf(c.conv->v, statistics_type(c.dtype));
    LayerAnswer answer;
    for (const LayerStep& step : c.steps) {
      // The forward pass convolves with the weight as the case's dtype holds it.
      const at::Tensor exact = standardised_filters(v, c.strategy);
      const at::Tensor w = exact + (exact.to(c.dtype).to(at::kDouble) - exact).detach();
      Tensors all = leaves(step.inputs, c.dtype), y;
      LayerStepAnswer out;
      for (const at::Tensor& tower : all) {
        y.push_back(at::conv2d(tower, w, {}, c.conv->stride, c.conv->padding));
        out.outputs.push_back(y.back().detach());
      }
      all.push_back(v);
      Tensors found = gradients(y, leaves(step.gradients, c.dtype), all);
      out.v_gradient = found.back();
      if (!step.gradients.empty()) {
        found.pop_back();
        out.input_gradients = found;
      }
      answer.steps.push_back(out);
    }
    return answer;
  }

  std::vector<Json> variants() const override {
    return {Json::object(),
            {{"form", "code"}},
            {{"eps", 0.1}},
            {{"form", "code"}, {"eps", 0.1}},
            {{"base", "none"}}};
  }

  bool convolves() const override { return true; }
};

const Registered<Reference> weight_standardisation{
    about("weight_standardisation"),
    [](const Json&, const Reference::Context&) { return std::make_unique<WeightStandardisation>(); }};

}  // namespace
}  // namespace bnlab::reference
