// Gradients beside central differences of the layer's own answers.
#include <torch/types.h>

#include <cmath>
#include <sstream>

#include "harness/verify/reference.hpp"
#include "tests/verify/conformance.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

// A direction in which finite differences nudge, and what the answer says of it.
struct Nudge {
  std::string what;
  std::function<void(LayerCase&, double)> apply;
  double slope;                // by the answer's gradients
  std::vector<size_t> towers;  // whose loss counts
};

double loss(const LayerAnswer& answer, const LayerStep& step, const std::vector<size_t>& towers) {
  double sum = 0;
  for (const size_t t : towers)
    sum += (answer.steps.back().outputs[t] * step.gradients[t]).sum().item<double>();
  return sum;
}

std::vector<Nudge> nudges(const LayerCase& c, const LayerStepAnswer& answer) {
  const at::Generator generator = at::detail::createCPUGenerator(5);
  std::vector<size_t> all;
  for (size_t t = 0; t < c.towers(); ++t) all.push_back(t);
  std::vector<Nudge> found;
  const auto add = [&](const std::string& what, const at::Tensor& gradient, auto tensor_of,
                       const std::vector<size_t>& towers) {
    const at::Tensor direction = at::randn(gradient.sizes(), generator, gradient.options());
    found.push_back({what,
                     [=](LayerCase& nudged, double by) {
                       at::Tensor& t = tensor_of(nudged);
                       t = t + by * direction;
                     },
                     (gradient * direction).sum().item<double>(), towers});
  };
  const bool own_tower = option(c.strategy, "gradient") == "own_tower";
  for (const size_t t : all) {
    const auto input = [t](LayerCase& n) -> at::Tensor& { return n.steps.back().inputs[t]; };
    add("input of tower " + std::to_string(t), answer.input_gradients[t], input,
        own_tower ? std::vector<size_t>{t} : all);
  }
  if (c.weight.defined()) {
    const auto weight = [](LayerCase& n) -> at::Tensor& { return n.weight; };
    const auto bias = [](LayerCase& n) -> at::Tensor& { return n.bias; };
    add("weight", answer.weight_gradient, weight, all);
    add("bias", answer.bias_gradient, bias, all);
  }
  for (const auto& [name, given] : c.parameters) {
    const auto parameter = [name = name](LayerCase& n) -> at::Tensor& { return n.parameters.at(name); };
    add(name, answer.parameter_gradients.at(name), parameter, all);
  }
  if (c.conv && option(c.strategy, "init") != "data") {  // else the first step makes them
    const auto v = [](LayerCase& n) -> at::Tensor& { return n.conv->v; };
    const auto gain = [](LayerCase& n) -> at::Tensor& { return n.conv->gain; };
    const auto bias = [](LayerCase& n) -> at::Tensor& { return n.conv->bias; };
    add("v", answer.v_gradient, v, all);
    if (answer.gain_gradient.defined()) {
      add("gain", answer.gain_gradient, gain, all);
      add("bias", answer.bias_gradient, bias, all);
    }
  }
  return found;
}

}  // namespace

// Central differences of the sum of output times given gradient, along random directions. Running statistics
// far from the batch hold the limits of a renormalisation constant, as its gradient takes them to be.
std::string gradients_are_finite_differences(const Json& strategy, const Applier& apply) {
  if (option(strategy, "gradient") == "stopped") return "";  // it is not the derivative, by choice
  // A convolution may be initialised in its first step.
  const size_t steps = reference_of(strategy)->convolves() ? 2 : 1;
  LayerCase c = small_case(strategy, std::vector<Mode>(steps, Mode::train));
  c.activation = c.conv ? Activation::none : Activation::relu;
  if (c.running_mean.defined() && c.running_var.defined()) {
    c.running_mean.fill_(-3);
    c.running_var.fill_(1e-2);
  }
  const LayerAnswer answer = apply(c, 1);
  for (const Nudge& nudge : nudges(c, answer.steps.back())) {
    constexpr double kStep = 1e-5;
    const auto at_distance = [&](double by) {
      LayerCase nudged = c;
      nudge.apply(nudged, by);
      nudged.steps.back().gradients.clear();
      return loss(apply(nudged, 1), c.steps.back(), nudge.towers);
    };
    const double slope = (at_distance(kStep) - at_distance(-kStep)) / (2 * kStep);
    if (!(std::abs(slope - nudge.slope) <= 1e-7 * std::max(1.0, std::abs(slope)))) {
      std::ostringstream line;
      line << "gradient of " << nudge.what << ": " << nudge.slope << ", finite differences give " << slope;
      return line.str();
    }
  }
  return "";
}

}  // namespace bnlab
