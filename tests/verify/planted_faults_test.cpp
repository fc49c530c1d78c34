// The checks of the checks: mistakes that implementations of batch normalisation are known for, each planted
// around a sound strategy. The check that is named with a fault must complain of it, and of nothing without
// it.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cctype>
#include <iostream>

#include "tests/verify/planted_faults.hpp"

namespace bnlab {
namespace {

struct Fault {
  std::string name;
  Json strategy;
  std::string caught_by;
  Applier apply;
};

void PrintTo(const Fault& fault, std::ostream* out) {
  *out << fault.name;
}

std::vector<Fault> in_what_normalises() {
  return {
      {"equal weighting of uneven towers", "sync", "float64", equal_weights},
      {"the spread of the towers' means dropped", "sync", "float64", with_option("variance", "averaged")},
      {"towers weighed by their values",
       {{"name", "sync"}, {"weights", "equal"}},
       "float64",
       with_option("weights", "values")},
      {"the biased variance in place of the unbiased one",
       {{"name", "sync"}, {"normalise", "unbiased"}},
       "float64",
       with_option("normalise", "biased")},
      {"E[x2] - E[x]^2 in place of squared deviations", "sync", "large mean", with_option("moments", "e_x2")},
      {"groups of all towers",
       {{"name", "sync"}, {"group_size", 2}},
       "float64",
       with_option("group_size", nullptr)},
      {"eps outside the root", "per_tower", "float64", eps_outside_the_root},
      {"renormalised with the updated running statistics", "batch_renorm", "float64",
       renorm_after_the_update},
      {"d_max ignored", {{"name", "batch_renorm"}, {"d_max", 0.1}}, "float64", with_option("d_max", 1e9)},
      {"frozen one step late",
       {{"name", "frozen"}, {"from_step", 1}},
       "float64",
       with_option("from_step", 2)},
      {"strided virtual batches",
       {{"name", "ghost"}, {"virtual_batch", 2}},
       "float64",
       strided_virtual_batches},
      {"eps beside the deviation in place of under the root",
       {{"name", "weight_standardisation"}, {"eps", 0.1}},
       "float64",
       with_option("form", "code")},
      {"a step's own moments in place of the window's",
       {{"name", "mabn"}, {"window", 2}, {"warmup_steps", 0}},
       "float64",
       with_option("warmup_steps", 1000)},
      {"a window that forgets a step too soon",
       {{"name", "mabn"}, {"window", 2}, {"warmup_steps", 0}},
       "float64",
       with_option("window", 1)},
      {"the correction towards the running moments forgotten",
       {{"name", "mabn"}, {"window", 1}, {"warmup_steps", 0}, {"renorm_from_step", 1}},
       "float64",
       with_option("renorm_from_step", 1000)},
      {"the variance in place of the second moment", "mabn", "float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy({{"name", "averaged"}, {"running_variance", "biased"}});
         return apply_layer(changed, ranks);
       }},
      {"the threshold forgotten", "filter_response_norm", "float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.parameters.clear();
         return apply_layer(changed, ranks);
       }},
      {"a tower's mean square in the place of a sample's", "filter_response_norm", "float64",
       whole_tower_as_one_response},
      {"the slope's gradient forgotten", "dynamic_tanh", "finite differences",
       spoiling([](const LayerStep&, LayerStepAnswer& answer) {
         for (auto& [name, gradient] : answer.parameter_gradients) gradient = at::zeros_like(gradient);
       })},
      {"the micro-batches before forgotten", "cmbn", "micro-batches",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy("per_tower");
         return apply_layer(changed, ranks);
       }},
      {"micro-batches of the step before remembered", "cmbn", "micro-batches",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.accumulate *= 2;
         return apply_layer(changed, ranks);
       }},
      {"sets of one tower where they span two",
       {{"name", "norm_batch"}, {"samples", 12}},
       "float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy("averaged");
         return apply_layer(changed, ranks);
       }},
  };
}

std::vector<Fault> in_what_is_remembered() {
  const auto count = [](const LayerStep& step) {
    double all = 0;
    for (const at::Tensor& x : step.inputs) all += static_cast<double>(elements(x));
    return all;
  };
  return {
      {"biased running variance", "sync", "float64",
       writing([=](const LayerStep& step, at::Tensor&, at::Tensor& var) {
         var = var * (count(step) - 1) / count(step);
       })},
      {"local count in the running variance", "sync", "float64",
       writing([=](const LayerStep& step, at::Tensor&, at::Tensor& var) {
         const auto local = static_cast<double>(elements(step.inputs.front()));
         var = local > 1 ? var * ((count(step) - 1) / count(step) * local / (local - 1)) : var;
       })},
      {"an empty tower counted", "averaged", "empty towers",
       writing([](const LayerStep& step, at::Tensor& mean, at::Tensor& var) {
         double filled = 0;
         for (const at::Tensor& x : step.inputs) filled += x.size(0) > 0 ? 1 : 0;
         mean = mean * (filled / static_cast<double>(step.inputs.size()));
         var = var * (filled / static_cast<double>(step.inputs.size()));
       })},
      {"last for first", "single_tower", "float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy("last_tower");
         return apply_layer(changed, ranks);
       }},
      {"statistics written in every pass", "sync", "micro-batches",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.statistics_per_step = false;
         return apply_layer(changed, ranks);
       }},
      {"the start left in the average",
       {{"name", "averaged"}, {"running", "zero_debias"}},
       "float64",
       with_option("running", "fading")},
      {"steps counted in place of updates",
       {{"name", "every_tower"}, {"running", "zero_debias"}},
       "float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy({{"name", "averaged"}, {"running", "zero_debias"}});
         return apply_layer(changed, ranks);
       }},
      {"momentum as the weight of the old value", "averaged", "float64", with_option("momentum", 0.9)},
      {"running statistics that decay without samples", "sync", "all towers empty",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (at::cat(step.inputs).size(0) == 0) answer.running_mean = answer.running_mean * 0.9;
       })},
      {"statistics in half precision", "sync", "half precision",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (step.inputs.front().scalar_type() == at::kHalf)
           answer.running_var = answer.running_var.to(at::kHalf).to(at::kFloat);
       })},
  };
}

std::vector<Fault> in_gradients() {
  return {
      {"the weights of towers forgotten on the way back",
       {{"name", "sync"}, {"weights", "equal"}},
       "finite differences",
       gradients_of(with_option("weights", "values"))},
      {"N in place of N - 1 on the way back",
       {{"name", "sync"}, {"normalise", "unbiased"}},
       "finite differences",
       gradients_of(with_option("normalise", "biased"))},
      {"missing backward exchange", "sync", "finite differences", with_option("gradient", "own_tower")},
      {"gradient stopped at the moments", "per_tower", "finite differences",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy({{"name", "sync"}, {"group_size", 1}, {"gradient", "stopped"}});
         return apply_layer(changed, ranks);
       }},
      {"gamma's gradient reduced inside the layer as well", "sync", "placement",
       [](const LayerCase& c, int ranks) {
         LayerAnswer answer = apply_layer(c, ranks);
         for (LayerStepAnswer& step : answer.steps)
           step.weight_gradient =
               step.weight_gradient.defined() ? step.weight_gradient * ranks : at::Tensor();
         return answer;
       }},
      {"the filters' deviations taken as constants", "weight_standardisation", "finite differences",
       filters_deviations_as_constants},
      {"shuffle not undone in backward", "shuffle", "finite differences", gradients_left_shuffled},
      {"v's gradient not perpendicular to v",
       {{"name", "weight_norm"}, {"init", "none"}},
       "finite differences",
       [](const LayerCase& c, int ranks) {
         LayerAnswer answer = apply_layer(c, ranks);
         const at::Tensor along = c.conv->v / c.conv->v.flatten(1).square().sum(1).view({-1, 1, 1, 1});
         for (LayerStepAnswer& step : answer.steps)
           if (step.v_gradient.defined())
             step.v_gradient =
                 step.v_gradient + (c.conv->gain * step.gain_gradient).view({-1, 1, 1, 1}) * along;
         return answer;
       }},
  };
}

std::vector<Fault> in_what_must_stay_as_it_is() {
  return {
      {"evaluation exchanges", "sync", "float64",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (step.mode == Mode::evaluate_saved)
           answer.collectives.push_back({"all_gather", 17, Purpose::statistics});
       })},
      {"evaluation remembers", "per_tower", "float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         for (LayerStep& step : changed.steps) step.mode = Mode::train;
         return apply_layer(changed, ranks);
       }},
      {"one value per channel accepted", "per_tower", "one value per channel", one_value_accepted},
      {"an empty tower's gradient forgotten", "sync", "empty towers",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (step.inputs.front().size(0) == 0 && !answer.input_gradients.empty())
           answer.input_gradients.front().reset();
       })},
      {"half precision promoted", "sync", "half precision",
       spoiling([](const LayerStep&, LayerStepAnswer& answer) {
         for (at::Tensor& y : answer.outputs) y = y.scalar_type() == at::kHalf ? y.to(at::kFloat) : y;
       })},
      {"channels_last given back contiguous", "sync", "channels last",
       spoiling([](const LayerStep&, LayerStepAnswer& answer) {
         for (at::Tensor& y : answer.outputs) y = y.contiguous();
       })},
  };
}

std::vector<Fault> all_faults() {
  std::vector<Fault> all;
  for (const auto& some :
       {in_what_normalises(), in_what_is_remembered(), in_gradients(), in_what_must_stay_as_it_is()}) {
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

class PlantedFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PlantedFault, IsCaughtByItsCheckWhichIsSilentWithoutIt) {
  const Fault& fault = GetParam();
  const Json strategy = resolved_strategy(fault.strategy);
  const Applier sound = [](const LayerCase& c, int ranks) { return apply_layer(c, ranks); };
  EXPECT_EQ(complaint(fault.caught_by, strategy, sound), "");
  const std::string found = complaint(fault.caught_by, strategy, fault.apply);
  EXPECT_NE(found, "");
  EXPECT_EQ(found.find("it refuses"), std::string::npos) << found;
  EXPECT_EQ(found.find("it fails"), std::string::npos) << found;
  std::cout << fault.name << ": caught by \"" << fault.caught_by << "\": " << found << "\n";
}

INSTANTIATE_TEST_SUITE_P(Known, PlantedFault, ::testing::ValuesIn(all_faults()), [](const auto& each) {
  std::string name = each.param.name;
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
});

}  // namespace
}  // namespace bnlab
