#include "tests/verify/plain_batch_norm.hpp"

#include <torch/types.h>

namespace bnlab {

Json option(const Json& strategy, const std::string& key) {
  if (strategy.contains(key)) return strategy.at(key);
  return strategy.contains("base") ? option(strategy.at("base"), key) : Json();
}

const Json& innermost(const Json& strategy) {
  return strategy.contains("base") ? innermost(strategy.at("base")) : strategy;
}

at::Tensor by_channel(const at::Tensor& values, const at::Tensor& like) {
  std::vector<int64_t> shape(static_cast<size_t>(like.dim()), 1);
  shape[1] = -1;
  return values.view(shape);
}

at::Tensor rows(const at::Tensor& x) {
  return x.transpose(0, 1).flatten(1);
}

LayerAnswer plain_batch_norm(const LayerCase& c) {
  const Json momentum = option(c.strategy, "momentum");
  const auto leaf = [](const at::Tensor& t) {
    return t.defined() ? t.clone().requires_grad_(true) : at::Tensor();
  };
  LayerAnswer answer;
  at::Tensor running_mean = c.running_mean.clone(), running_var = c.running_var.clone();
  for (const LayerStep& step : c.steps) {
    const at::Tensor x = at::cat(step.inputs).requires_grad_(true), weight = leaf(c.weight),
                     bias = leaf(c.bias);
    LayerStepAnswer& a = answer.steps.emplace_back();
    const double new_weight =
        momentum.is_null() ? 1.0 / static_cast<double>(answer.steps.size()) : momentum.get<double>();
    const at::Tensor y = at::batch_norm(x, weight, bias, running_mean, running_var, true, new_weight,
                                        option(c.strategy, "eps").get<double>(), false);
    y.backward(at::cat(step.gradients));
    a.outputs = {y.detach()};
    a.input_gradients = {x.grad()};
    if (weight.defined()) {
      a.weight_gradient = weight.grad();
      a.bias_gradient = bias.grad();
    }
    a.running_mean = running_mean.clone();
    a.running_var = running_var.clone();
  }
  return answer;
}

LayerAnswer joined(const LayerAnswer& answer) {
  LayerAnswer result = answer;
  for (LayerStepAnswer& step : result.steps) {
    step.outputs = {at::cat(step.outputs)};
    step.input_gradients = {at::cat(step.input_gradients)};
  }
  return result;
}

LayerCase dealt(const LayerCase& c, const std::vector<int64_t>& sizes) {
  LayerCase result = c;
  for (LayerStep& step : result.steps) {
    step.inputs = at::cat(step.inputs).split_with_sizes(sizes);
    step.gradients = at::cat(step.gradients).split_with_sizes(sizes);
  }
  return result;
}

}  // namespace bnlab
