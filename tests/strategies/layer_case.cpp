#include "tests/strategies/layer_case.hpp"

#include <algorithm>

#include "harness/communicator/world.hpp"
#include "harness/error.hpp"
#include "harness/registry.hpp"
#include "strategies/tower_norm.hpp"

namespace bnlab {
namespace {

class OneSite : public Network {
 public:
  OneSite(LayerMaker& layers, const NormSite& site) : layer_(register_module("site", layers.norm(site))) {}
  at::Tensor features(at::Tensor x) override { return layer_->forward(std::move(x)); }
  at::Tensor head(at::Tensor x) override { return x; }

 private:
  std::shared_ptr<Layer> layer_;
};

}  // namespace

Json resolved_strategy(const Json& strategy) {
  Problems problems;
  const Json all = resolve({Parameter::component("strategy", "strategy", nullptr, "")},
                           {{"strategy", strategy}}, "", problems);
  if (!problems.empty()) {
    throw Error(Error::Kind::spec, problems.found().front().first + ": " + problems.found().front().second);
  }
  return all.at("strategy");
}

LayerAnswer apply_layer(const LayerCase& c) {
  const auto world = join_world({}, at::kCPU);
  const at::Tensor& first = c.inputs.front();
  const auto strategy = Registered<Strategy>::create(
      resolved_strategy(c.strategy), {world->statistics(), 0, first.scalar_type(), at::kCPU, 100});
  OneSite network(*strategy, {"site", first.size(1), c.activation});
  auto parameters = network.named_parameters();
  {
    const at::NoGradGuard no_grad;
    if (c.weight.defined()) {
      parameters["site.weight"].copy_(c.weight);
      parameters["site.bias"].copy_(c.bias);
    }
    if (c.running_mean.defined()) {
      dynamic_cast<TowerNorm&>(*network.children().front())
          .set_saved_pair(at::stack({c.running_mean, c.running_var}));
    }
  }
  std::vector<int64_t> sizes;
  for (const at::Tensor& x : c.inputs) {
    sizes.push_back(x.size(0));
  }
  const auto format = first.dim() == 4 ? first.suggest_memory_format() : at::MemoryFormat::Contiguous;
  LayerAnswer answer;
  for (int step = 0; step < c.steps; ++step) {
    for (const auto& p : parameters) {
      p.value().mutable_grad() = at::Tensor();
    }
    const at::Tensor x = at::cat(c.inputs).contiguous(format).detach().requires_grad_(true);
    const at::Tensor y = strategy->forward(network, {x, {}, Towers(sizes, 1, 0)}, {step, 100}, c.mode);
    answer.outputs = y.detach().split_with_sizes(sizes);
    if (!c.gradients.empty()) {
      y.backward(at::cat(c.gradients).contiguous(format));
      answer.input_gradients = x.grad().split_with_sizes(sizes);
    }
  }
  if (parameters.contains("site.weight")) {
    answer.weight_gradient = parameters["site.weight"].grad();
    answer.bias_gradient = parameters["site.bias"].grad();
  }
  strategy->before_eval(network);
  if (strategy->has_running_statistics()) {
    answer.running_mean = network.named_buffers()["site.running_mean"].clone();
    answer.running_var = network.named_buffers()["site.running_var"].clone();
  }
  answer.nonfinite_channels = strategy->nonfinite_channels();
  return answer;
}

double relative_error(const at::Tensor& a, const at::Tensor& b) {
  if (b.numel() == 0) {
    return a.numel() == 0 ? 0 : 1;
  }
  const double largest = std::max(b.abs().max().item<double>(), 1e-300);
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>() / largest;
}

}  // namespace bnlab
