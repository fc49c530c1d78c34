// Reference of dynamic_tanh: y = gamma tanh(alpha x) + beta.
#include <algorithm>

#include "strategies/reference/reference.hpp"

namespace bnlab::reference {
namespace {

class DynamicTanh : public Site {
 public:
  DynamicTanh(const Json& options, const Start& start)
      : affine_(options.at("affine").get<bool>()),
        parameters_{{"alpha", start.parameter(
                                  "alpha", at::full({1}, options.at("alpha").get<double>(), at::kDouble))}} {}

  Tensors train(const Tensors& x) override { return evaluate_batch(x); }
  Tensors evaluate(const Tensors& x, const Pair&) override { return evaluate_batch(x); }
  Tensors evaluate_batch(const Tensors& x) override {
    Tensors y;
    for (const at::Tensor& tower : x) y.push_back((tower * parameters_.at("alpha")).tanh());
    return y;
  }
  bool affine() const override { return affine_; }
  const NamedTensors& parameters() const override { return parameters_; }

 private:
  bool affine_;
  NamedTensors parameters_;
};

class DynamicTanhReference : public SiteReference {
 public:
  using SiteReference::SiteReference;

  // Where all values are saturated, 1 - t^2 has lost as many digits as it is small.
  double conditioning(const LayerCase& c) const override {
    const double alpha = c.parameters.count("alpha") > 0
                             ? c.parameters.at("alpha").to(at::kDouble).item<double>()
                             : c.strategy.at("alpha").get<double>();
    double steepest = 0;
    for (const LayerStep& step : c.steps) {
      for (const at::Tensor& x : step.inputs) {
        if (x.numel() > 0) {
          const at::Tensor slope = 1 - (alpha * x.to(at::kCPU, at::kDouble)).tanh().square();
          steepest = std::max(steepest, slope.nan_to_num(0).max().item<double>());
        }
      }
    }
    return std::min(1 / std::max(steepest, 1e-9), 1e9);
  }
};

const auto dynamic_tanh = site_reference<DynamicTanh, DynamicTanhReference>(
    "dynamic_tanh", {Json::object(), {{"alpha", 0.1}}, {{"affine", false}}});

}  // namespace
}  // namespace bnlab::reference
