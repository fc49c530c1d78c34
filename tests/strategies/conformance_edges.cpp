// The checks of what has no values, must not be touched, or must keep its form: evaluation, empty towers, one
// value per channel, dtypes, memory formats.
#include <torch/types.h>

#include "tests/strategies/conformance_parts.hpp"

namespace bnlab {
namespace {

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || at::equal(a, b));
}

Complaints evaluation_changes_and_sends_nothing(const Json& strategy, const Applier& apply) {
  const std::vector<int64_t> towers{2, 3, 1, 4};
  LayerCase with = case_for(strategy, {towers, {8, 2, 3}, {Mode::train, Mode::evaluate_saved, Mode::train}});
  if (with.running_mean.defined()) {
    LayerStep batch = with.steps[1];
    batch.mode = Mode::evaluate_batch;
    with.steps.insert(with.steps.begin() + 2, batch);
  }
  LayerCase without = with;
  without.steps = {with.steps.front(), with.steps.back()};
  const LayerAnswer a = apply(with, 1), b = apply(without, 1);
  Complaints found;
  if (!a.steps[1].collectives.empty()) {
    found.push_back("an evaluation issues the collective " + a.steps[1].collectives.front().op);
  }
  for (size_t k = 1; k + 1 < a.steps.size(); ++k) {
    if (!same_bits(a.steps[k].running_mean, a.steps[0].running_mean) ||
        !same_bits(a.steps[k].running_var, a.steps[0].running_var)) {
      found.push_back("an evaluation changes the running statistics (step " + std::to_string(k) + ")");
    }
  }
  LayerAnswer last, expected;
  last.steps = {a.steps.back()};
  expected.steps = {b.steps.back()};
  append(found, "training after an evaluation", differences(last, expected, 0));
  return found;
}

// The case without its empty towers.
LayerCase compacted(const LayerCase& c) {
  LayerCase result = c;
  for (LayerStep& step : result.steps) {
    const auto is_empty = [](const at::Tensor& t) { return t.size(0) == 0; };
    std::erase_if(step.inputs, is_empty);
    std::erase_if(step.gradients, is_empty);
  }
  return result;
}

Complaints empty_towers_change_nothing_elsewhere(const Json& strategy, const Applier& apply) {
  Complaints found;
  for (const std::vector<int64_t>& towers :
       std::vector<std::vector<int64_t>>{{0, 3, 2, 4}, {3, 0, 2, 4}, {3, 2, 4, 0}, {0, 0, 4, 0}}) {
    const LayerCase c = case_for(strategy, {towers, {8, 2, 3}, kTrain});
    append(found, "towers " + listed(towers), against_reference(c, apply, kFloat64));
    const LayerCase without = compacted(c);
    if (!fits(strategy, static_cast<int64_t>(without.towers()))) {
      continue;  // groups would be others
    }
    LayerAnswer with = apply(c, 1), expected = apply(without, 1);
    for (LayerStepAnswer* a : {&with.steps[0], &expected.steps[0]}) {
      const auto is_empty = [](const at::Tensor& t) { return t.size(0) == 0; };
      std::erase_if(a->outputs, is_empty);
      std::erase_if(a->input_gradients, is_empty);
      a->running_mean.reset();  // which towers are remembered goes by their index
      a->running_var.reset();
    }
    append(found, "towers " + listed(towers) + " beside those without the empty ones",
           differences(with, expected, bound_for(c, kFloat64)));
  }
  return found;
}

Complaints all_towers_empty_leave_everything(const Json& strategy, const Applier& apply) {
  const LayerCase c = case_for(strategy, {{0, 0, 0, 0}, {8, 2, 3}, kTrain});
  const LayerStepAnswer answer = apply(c, 1).steps.front();
  Complaints found;
  if (!same_bits(answer.running_mean, c.running_mean) || !same_bits(answer.running_var, c.running_var)) {
    found.push_back("the running statistics change");
  }
  for (const at::Tensor& t : {answer.weight_gradient, answer.bias_gradient, answer.v_gradient,
                              answer.gain_gradient, answer.gain, answer.bias}) {
    if (t.defined() && !t.isfinite().all().item<bool>()) {
      found.push_back("a gradient or parameter is not finite");
    }
  }
  return found;
}

// Every rank throws the same from sizes alone; else the others would wait for its exchange.
Complaints one_value_is_refused(const Json& strategy, const Applier& apply) {
  Complaints found;
  if (reference_of(strategy)->convolves()) {
    return found;
  }
  for (const std::vector<int64_t>& towers :
       std::vector<std::vector<int64_t>>{{1, 0, 0, 0}, {3, 1, 1, 3}, {1, 1, 1, 1}}) {
    const LayerCase c = case_for(strategy, {towers, {8}, kTrain});
    const std::string expected = attempt([&] { return reference_of(c.strategy)->answer(c); }).refusal;
    for (const int ranks : {1, 2}) {
      const std::string where = "towers " + listed(towers) + ", " + std::to_string(ranks) + " ranks: ";
      const Outcome actual = attempt([&] { return apply(c, ranks); });
      if (expected.empty() != actual.refusal.empty()) {
        found.push_back(where + (expected.empty() ? actual.refusal : "not refused"));
      } else if (expected.find("more than 1 value per channel") != std::string::npos &&
                 (actual.refusal.find("more than 1 value per channel is needed to normalise (site ") != 0 ||
                  actual.refusal.find(", set of 1)") == std::string::npos ||
                  actual.refusal.find(", strategy ") == std::string::npos)) {
        found.push_back(where + "refused with: " + actual.refusal);
      }
    }
  }
  return found;
}

Complaints half_precision_keeps_its_dtype(const Json& strategy, const Applier& apply) {
  Complaints found;
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    const LayerCase c = case_for(strategy, {{3, 0, 2, 4}, {8, 2, 3}, kTrainAndEvaluate, 0, dtype});
    const LayerAnswer answer = apply(c, 1);
    for (const LayerStepAnswer& step : answer.steps) {
      for (const auto* tensors : {&step.outputs, &step.input_gradients}) {
        for (const at::Tensor& t : *tensors) {
          if (t.scalar_type() != dtype) {
            found.push_back(std::string("an output or input gradient is ") + c10::toString(t.scalar_type()));
          }
        }
      }
      for (const at::Tensor& t : {step.running_mean, step.running_var, step.weight_gradient, step.gain}) {
        if (t.defined() && t.scalar_type() != at::kFloat) {
          found.push_back(std::string("statistics or parameters are ") + c10::toString(t.scalar_type()));
        }
      }
    }
    // Outputs round to 11 and 8 bits. What is remembered of them does not, but a convolution's output does.
    const double rounding = dtype == at::kHalf ? 2e-3 : 1.6e-2;
    LayerAnswer expected = reference_of(c.strategy)->answer(c);
    append(found, c10::toString(dtype), differences(answer, expected, rounding));
    for (size_t k = 0; k < expected.steps.size() && !c.conv; ++k) {
      const LayerStepAnswer &a = answer.steps[k], &e = expected.steps[k];
      if (e.running_mean.defined() && (deviation(a.running_mean, e.running_mean) > kFloat32 ||
                                       deviation(a.running_var, e.running_var) > kFloat32)) {
        found.push_back("the running statistics are rounded below float32");
      }
    }
  }
  return found;
}

Complaints channels_last_goes_in_and_out(const Json& strategy, const Applier& apply) {
  Complaints found;
  for (const std::vector<int64_t>& rest : {std::vector<int64_t>{8, 2, 3}, {8, 2, 2, 3}}) {
    if (rest.size() == 4 && reference_of(strategy)->convolves()) {
      continue;
    }
    const auto format = rest.size() == 3 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
    LayerCase c = case_for(strategy, {{2, 3, 0, 4}, rest, kTrainAndEvaluate});
    const LayerAnswer contiguous = apply(c, 1);
    c.memory_format = at::MemoryFormat::ChannelsLast;
    const LayerAnswer answer = apply(c, 1);
    append(found, listed(rest), differences(answer, contiguous, bound_for(c, kFloat64)));
    for (const LayerStepAnswer& step : answer.steps) {
      for (const auto* tensors : {&step.outputs, &step.input_gradients}) {
        for (const at::Tensor& t : *tensors) {
          if (t.size(0) > 0 && !t.is_contiguous(format)) {
            found.push_back(listed(rest) + ": an output or input gradient is not channels_last");
          }
        }
      }
    }
  }
  return found;
}

}  // namespace

std::vector<Check> edge_checks() {
  return {{"evaluation", evaluation_changes_and_sends_nothing},
          {"empty towers", empty_towers_change_nothing_elsewhere},
          {"all towers empty", all_towers_empty_leave_everything},
          {"one value per channel", one_value_is_refused},
          {"half precision", half_precision_keeps_its_dtype},
          {"channels last", channels_last_goes_in_and_out}};
}

}  // namespace bnlab
