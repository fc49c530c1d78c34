#include "tests/strategies/conformance.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tests/strategies/conformance_parts.hpp"
#include "tests/strategies/plain_batch_norm.hpp"

namespace bnlab {

void append(Complaints& all, const std::string& where, const Complaints& more) {
  for (const std::string& complaint : more) {
    all.push_back(where + ": " + complaint);
  }
}

std::string listed(const std::vector<int64_t>& values) {
  std::ostringstream text;
  text << at::IntArrayRef(values);
  return text.str();
}

double bound_for(const LayerCase& c, double bound) {
  return bound * reference_of(c.strategy)->conditioning(c);
}

Complaints against_reference(const LayerCase& c, const Applier& apply, double bound) {
  const Outcome expected = attempt([&] { return reference_of(c.strategy)->answer(c); });
  const Outcome actual = attempt([&] { return apply(c, 1); });
  if (expected.refusal.empty() != actual.refusal.empty()) {
    return {expected.refusal.empty() ? "refused: " + actual.refusal : "must refuse: " + expected.refusal};
  }
  return differences(actual.answer, expected.answer, bound_for(c, bound));
}

namespace {

Complaints agrees_in_float64(const Json& strategy, const Applier& apply) {
  Complaints found;
  for (const std::vector<int64_t>& towers :
       std::vector<std::vector<int64_t>>{{3}, {2, 2}, {2, 3, 1, 4}, {0, 3, 0, 2}, {2, 2, 2, 2, 2, 2, 2, 2}}) {
    if (fits(strategy, static_cast<int64_t>(towers.size()))) {
      const LayerCase c = case_for(strategy, {towers, {8, 2, 3}, kTrainAndEvaluate});
      append(found, "towers " + listed(towers), against_reference(c, apply, kFloat64));
    }
  }
  if (!reference_of(strategy)->convolves()) {
    for (const std::vector<int64_t>& rest : std::vector<std::vector<int64_t>>{{8}, {8, 5}, {8, 2, 2, 3}}) {
      const LayerCase c = case_for(strategy, {{5, 3, 6, 4}, rest, kTrain});
      append(found, "channels and positions " + listed(rest), against_reference(c, apply, kFloat64));
    }
  }
  return found;
}

Complaints agrees_in_float32(const Json& strategy, const Applier& apply) {
  const CaseShape shape{{2, 3, 1, 4}, {8, 2, 3}, kTrainAndEvaluate, 0, at::kFloat};
  return against_reference(case_for(strategy, shape), apply, kFloat32);
}

// What E[x2] - E[x]^2 cannot do: 1e-16 m^2 / v = 1e-10.
Complaints agrees_about_a_large_mean(const Json& strategy, const Applier& apply) {
  return against_reference(case_for(strategy, {{4, 3, 2, 4}, {8, 2, 3}, kTrain, 1000}), apply, kFloat64);
}

Complaints is_placement_invariant(const Json& strategy, const Applier& apply) {
  Complaints found;
  for (const std::vector<int64_t>& towers : {std::vector<int64_t>{2, 2, 2, 2}, {0, 3, 2, 4}}) {
    const LayerCase c = case_for(strategy, {towers, {8, 2, 3}, kTrainAndEvaluate});
    const LayerAnswer one = apply(c, 1);
    for (const int ranks : {2, 4}) {
      append(found, std::to_string(ranks) + " ranks, towers " + listed(towers),
             differences(apply(c, ranks), one, bound_for(c, kFloat64)));
    }
  }
  return found;
}

// What finite differences nudge, and what it says of it.
struct Nudge {
  std::string what;
  std::function<void(LayerCase&, double)> apply;
  double slope;                // as the answer's gradients have it
  std::vector<size_t> towers;  // whose loss counts
};

double loss(const LayerAnswer& answer, const LayerStep& step, const std::vector<size_t>& towers) {
  double sum = 0;
  for (const size_t t : towers) {
    sum += (answer.steps.back().outputs[t] * step.gradients[t]).sum().item<double>();
  }
  return sum;
}

std::vector<Nudge> nudges(const LayerCase& c, const LayerStepAnswer& answer) {
  const at::Generator generator = at::detail::createCPUGenerator(5);
  std::vector<size_t> all;
  for (size_t t = 0; t < c.towers(); ++t) {
    all.push_back(t);
  }
  const bool own_tower = option(c.strategy, "gradient") == "own_tower";
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
  for (const size_t t : all) {
    add(
        "input of tower " + std::to_string(t), answer.input_gradients[t],
        [t](LayerCase& n) -> at::Tensor& { return n.steps.back().inputs[t]; },
        own_tower ? std::vector<size_t>{t} : all);
  }
  if (c.weight.defined()) {
    add(
        "weight", answer.weight_gradient, [](LayerCase& n) -> at::Tensor& { return n.weight; }, all);
    add(
        "bias", answer.bias_gradient, [](LayerCase& n) -> at::Tensor& { return n.bias; }, all);
  }
  if (c.conv && option(c.strategy, "init") != "data") {  // else the first step makes them
    add(
        "v", answer.v_gradient, [](LayerCase& n) -> at::Tensor& { return n.conv->v; }, all);
    add(
        "gain", answer.gain_gradient, [](LayerCase& n) -> at::Tensor& { return n.conv->gain; }, all);
    add(
        "bias", answer.bias_gradient, [](LayerCase& n) -> at::Tensor& { return n.conv->bias; }, all);
  }
  return found;
}

// Central differences of the sum of output times given gradient, along random directions. Running statistics
// far from the batch hold the limits of a renormalisation constant, as its gradient takes them to be.
Complaints gradients_are_finite_differences(const Json& strategy, const Applier& apply) {
  if (option(strategy, "gradient") == "stopped") {
    return {};  // not the derivative, by choice
  }
  // a convolution may be initialised in its first step
  LayerCase c = case_for(
      strategy, {{2, 3, 1, 4}, {8, 2, 3}, std::vector<Mode>(reference_of(strategy)->convolves() ? 2 : 1)});
  c.activation = c.conv ? Activation::none : Activation::relu;
  if (c.running_mean.defined() && c.running_var.defined()) {
    c.running_mean.fill_(-3);
    c.running_var.fill_(1e-2);
  }
  Complaints found;
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
      found.push_back(line.str());
    }
  }
  return found;
}

// Whether one tower is plain batch normalisation: by name, since it is the catalogue that says so.
bool one_tower_is_batch_norm(const Json& strategy) {
  static const std::vector<std::string> names{"per_tower", "single_tower", "last_tower", "every_tower",
                                              "averaged",  "sync",         "shuffle"};
  const bool before_frozen = strategy.at("name") != "frozen" || strategy.at("from_step").is_number_integer();
  if (!before_frozen || strategy.value("from_step", Json(1)) == 0) {
    return false;
  }
  return std::count(names.begin(), names.end(), innermost(strategy).at("name").get<std::string>()) > 0 &&
         option(strategy, "gradient") != "stopped" && fits(strategy, 1);
}

Complaints one_tower_equals_libtorch(const Json& strategy, const Applier& apply) {
  Complaints found;
  if (one_tower_is_batch_norm(strategy)) {
    for (const std::vector<int64_t>& rest :
         std::vector<std::vector<int64_t>>{{5}, {5, 7}, {16, 3, 4}, {3, 2, 3, 4}}) {
      const LayerCase c = case_for(strategy, {{6}, rest, kTrain});
      LayerAnswer answer = apply(c, 1), expected = plain_batch_norm(c);
      answer.steps[0].permutation.clear();     // shuffling one tower changes nothing but the order of sums
      if (strategy.at("name") == "precise") {  // recomputes the pair
        expected.steps[0].running_mean = answer.steps[0].running_mean;
        expected.steps[0].running_var = answer.steps[0].running_var;
      }
      append(found, listed(rest), differences(answer, expected, bound_for(c, kFloat64)));
    }
  }
  return found;
}

}  // namespace

std::vector<Check> value_checks() {
  return {{"reference in float64", agrees_in_float64},
          {"reference in float32", agrees_in_float32},
          {"large mean", agrees_about_a_large_mean},
          {"placement", is_placement_invariant},
          {"finite differences", gradients_are_finite_differences},
          {"one tower", one_tower_equals_libtorch}};
}

const std::vector<Check>& layer_checks() {
  static const std::vector<Check> all = [] {
    std::vector<Check> checks = value_checks();
    for (Check& check : edge_checks()) {
      checks.push_back(std::move(check));
    }
    return checks;
  }();
  return all;
}

Complaints complaints(const Check& check, const Json& strategy, const Applier& apply) {
  try {
    return check.find(strategy, apply);
  } catch (const std::exception& e) {
    return {std::string("unexpected exception: ") + e.what()};
  }
}

}  // namespace bnlab
