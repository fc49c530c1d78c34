// The checks of the checks: mistakes that implementations of batch normalisation are known for, each planted
// around a sound strategy. The check that is named with a fault must complain of it, and of nothing without
// it.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <iostream>

#include "harness/error.hpp"
#include "tests/strategies/conformance.hpp"
#include "tests/strategies/plain_batch_norm.hpp"

namespace bnlab {
namespace {

struct Fault {
  std::string name;
  Json strategy;
  std::string caught_by;
  Applier apply;
};

void expect_caught(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    SCOPED_TRACE(fault.name);
    const Json strategy = resolved_strategy(fault.strategy);
    const auto& all = layer_checks();
    const auto check =
        std::find_if(all.begin(), all.end(), [&](const Check& c) { return c.name == fault.caught_by; });
    ASSERT_NE(check, all.end());
    EXPECT_EQ(
        complaints(*check, strategy, [](const LayerCase& c, int ranks) { return apply_layer(c, ranks); }),
        Complaints{});
    const Complaints found = complaints(*check, strategy, fault.apply);
    ASSERT_FALSE(found.empty());
    EXPECT_EQ(found.front().find("refused: "), std::string::npos) << found.front();
    EXPECT_EQ(found.front().find("exception"), std::string::npos) << found.front();
    std::cout << fault.name << ": caught by \"" << check->name << "\": " << found.front() << "\n";
  }
}

// The layer with another option, as if the one asked for were not honoured.
Applier with_option(const std::string& key, const Json& value) {
  return [=](const LayerCase& c, int ranks) {
    LayerCase changed = c;
    changed.strategy[key] = value;
    return apply_layer(changed, ranks);
  };
}

// The layer's own answer, spoilt step by step.
Applier spoiling(const std::function<void(const LayerStep&, LayerStepAnswer&)>& spoil) {
  return [=](const LayerCase& c, int ranks) {
    LayerAnswer answer = apply_layer(c, ranks);
    for (size_t k = 0; k < c.steps.size(); ++k) {
      spoil(c.steps[k], answer.steps[k]);
    }
    return answer;
  };
}

int64_t elements(const at::Tensor& x) {
  return x.size(0) == 0 ? 0 : x.numel() / x.size(1);
}

// What a training step writes into the pair, spoilt: pair <- 0.9 pair + 0.1 written.
Applier writing(const std::function<void(const LayerStep&, at::Tensor& mean, at::Tensor& var)>& spoil) {
  return [=](const LayerCase& c, int ranks) {
    LayerAnswer answer = apply_layer(c, ranks);
    at::Tensor sound_mean = c.running_mean, sound_var = c.running_var, mean = sound_mean, var = sound_var;
    for (size_t k = 0; k < c.steps.size(); ++k) {
      LayerStepAnswer& step = answer.steps[k];
      if (c.steps[k].mode == Mode::train) {
        at::Tensor written_mean = (step.running_mean - 0.9 * sound_mean) / 0.1;
        at::Tensor written_var = (step.running_var - 0.9 * sound_var) / 0.1;
        spoil(c.steps[k], written_mean, written_var);
        mean = 0.9 * mean + 0.1 * written_mean;
        var = 0.9 * var + 0.1 * written_var;
      }
      sound_mean = std::exchange(step.running_mean, mean);
      sound_var = std::exchange(step.running_var, var);
    }
    return answer;
  };
}

// Moments per channel of one tower: mean and mean of squares.
std::pair<at::Tensor, at::Tensor> first_two_moments(const at::Tensor& x) {
  return {rows(x).mean(1), rows(x).square().mean(1)};
}

// The mean of the towers' moments, however many values they hold.
LayerAnswer equal_weights(const LayerCase& c, int ranks) {
  LayerAnswer answer = apply_layer(c, ranks);
  for (size_t k = 0; k < c.steps.size(); ++k) {
    std::vector<at::Tensor> means, squares;
    for (const at::Tensor& x : c.steps[k].inputs) {
      if (x.size(0) > 0 && c.steps[k].mode == Mode::train) {
        const auto [mean, square] = first_two_moments(x);
        means.push_back(mean);
        squares.push_back(square);
      }
    }
    for (size_t t = 0; t < c.towers() && !means.empty(); ++t) {
      const at::Tensor &x = c.steps[k].inputs[t], m = at::stack(means).mean(0);
      const at::Tensor scale = c.weight / (at::stack(squares).mean(0) - m.square() + 1e-5).sqrt();
      answer.steps[k].outputs[t] = (x - by_channel(m, x)) * by_channel(scale, x) + by_channel(c.bias, x);
    }
  }
  return answer;
}

// gamma (x - m) / (sqrt(v) + eps) + beta
LayerAnswer eps_outside_the_root(const LayerCase& c, int ranks) {
  LayerAnswer answer = apply_layer(c, ranks);
  for (size_t k = 0; k < c.steps.size(); ++k) {
    for (size_t t = 0; t < c.towers(); ++t) {
      const at::Tensor& x = c.steps[k].inputs[t];
      at::Tensor& y = answer.steps[k].outputs[t];
      if (x.size(0) > 0 && c.steps[k].mode == Mode::train) {
        const auto [mean, square] = first_two_moments(x);
        const at::Tensor var = square - mean.square(), bias = by_channel(c.bias, y);
        y = (y - bias) * by_channel((var + 1e-5).sqrt() / (var.sqrt() + 1e-5), y) + bias;
      }
    }
  }
  return answer;
}

// Every step is normalised with the running statistics that it has updated.
LayerAnswer renorm_after_the_update(const LayerCase& c, int ranks) {
  LayerAnswer answer = apply_layer(c, ranks);
  for (size_t k = 0; k < c.steps.size(); ++k) {
    LayerCase one = c;
    one.steps = {c.steps[k]};
    one.running_mean = answer.steps[k].running_mean;
    one.running_var = answer.steps[k].running_var;
    const LayerStepAnswer late = apply_layer(one, ranks).steps.front();
    answer.steps[k].outputs = late.outputs;
    answer.steps[k].input_gradients = late.input_gradients;
  }
  return answer;
}

void leave_gradients_shuffled(const LayerStep& step, LayerStepAnswer& answer) {
  if (answer.permutation.empty() || answer.input_gradients.empty()) {
    return;
  }
  std::vector<int64_t> sizes;
  for (const at::Tensor& x : step.inputs) {
    sizes.push_back(x.size(0));
  }
  answer.input_gradients = at::cat(answer.input_gradients)
                               .index_select(0, at::tensor(answer.permutation, at::kLong))
                               .split_with_sizes(sizes);
}

// Virtual batches of two samples that are half a tower apart, not neighbours.
LayerAnswer strided_virtual_batches(const LayerCase& c, int ranks) {
  const auto regrouped = [](std::vector<at::Tensor>& towers, bool back) {
    for (at::Tensor& t : towers) {
      const int64_t half = t.size(0) / 2;
      const at::Tensor order = at::arange(2 * half).view({2, half}).transpose(0, 1).reshape(-1);
      t = t.index_select(0, back ? order.argsort() : order);
    }
  };
  LayerCase changed = c;
  for (LayerStep& step : changed.steps) {
    regrouped(step.inputs, false);
    regrouped(step.gradients, false);
  }
  LayerAnswer answer = apply_layer(changed, ranks);
  for (LayerStepAnswer& step : answer.steps) {
    regrouped(step.outputs, true);
    regrouped(step.input_gradients, true);
  }
  return answer;
}

// Batch normalisation of one value: 0 / sqrt(eps).
LayerAnswer one_value_accepted(const LayerCase& c, int ranks) {
  try {
    return apply_layer(c, ranks);
  } catch (const Error&) {
    LayerCase evaluation = c;
    evaluation.steps.front().mode = Mode::evaluate_saved;
    return apply_layer(evaluation, ranks);
  }
}

TEST(PlantedFaults, InWhatNormalisesAreCaught) {
  expect_caught({
      {"equal weighting of uneven towers", "sync", "reference in float64", equal_weights},
      {"the spread of the towers' means dropped", "sync", "reference in float64",
       with_option("variance", "averaged")},
      {"E[x2] - E[x]^2 in place of squared deviations", "sync", "large mean", with_option("moments", "e_x2")},
      {"groups of all towers",
       {{"name", "sync"}, {"group_size", 2}},
       "reference in float64",
       with_option("group_size", nullptr)},
      {"eps outside the root", "per_tower", "reference in float64", eps_outside_the_root},
      {"renormalised with the updated running statistics", "batch_renorm", "reference in float64",
       renorm_after_the_update},
      {"d_max ignored",
       {{"name", "batch_renorm"}, {"d_max", 0.1}},
       "reference in float64",
       with_option("d_max", 1e9)},
      {"frozen one step late",
       {{"name", "frozen"}, {"from_step", 1}},
       "reference in float64",
       with_option("from_step", 2)},
      {"strided virtual batches",
       {{"name", "ghost"}, {"virtual_batch", 2}},
       "reference in float64",
       strided_virtual_batches},
  });
}

TEST(PlantedFaults, InWhatIsRememberedAreCaught) {
  const auto count = [](const LayerStep& step) {
    double all = 0;
    for (const at::Tensor& x : step.inputs) {
      all += static_cast<double>(elements(x));
    }
    return all;
  };
  expect_caught({
      {"biased running variance", "sync", "reference in float64",
       writing([=](const LayerStep& step, at::Tensor&, at::Tensor& var) {
         var = var * (count(step) - 1) / count(step);
       })},
      {"local count in the running variance", "sync", "reference in float64",
       writing([=](const LayerStep& step, at::Tensor&, at::Tensor& var) {
         const auto local = static_cast<double>(elements(step.inputs.front()));
         var = local > 1 ? var * ((count(step) - 1) / count(step) * local / (local - 1)) : var;
       })},
      {"an empty tower counted", "averaged", "empty towers",
       writing([](const LayerStep& step, at::Tensor& mean, at::Tensor& var) {
         double filled = 0;
         for (const at::Tensor& x : step.inputs) {
           filled += x.size(0) > 0 ? 1 : 0;
         }
         mean = mean * (filled / static_cast<double>(step.inputs.size()));
         var = var * (filled / static_cast<double>(step.inputs.size()));
       })},
      {"last for first", "single_tower", "reference in float64",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         changed.strategy = resolved_strategy("last_tower");
         return apply_layer(changed, ranks);
       }},
      {"momentum as the weight of the old value", "averaged", "reference in float64",
       with_option("momentum", 0.9)},
      {"running statistics that decay without samples", "sync", "all towers empty",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (at::cat(step.inputs).size(0) == 0) {
           answer.running_mean = answer.running_mean * 0.9;
         }
       })},
      {"statistics in half precision", "sync", "half precision",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (step.inputs.front().scalar_type() == at::kHalf) {
           answer.running_var = answer.running_var.to(at::kHalf).to(at::kFloat);
         }
       })},
  });
}

TEST(PlantedFaults, InGradientsAreCaught) {
  expect_caught({
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
         for (LayerStepAnswer& step : answer.steps) {
           step.weight_gradient =
               step.weight_gradient.defined() ? step.weight_gradient * ranks : at::Tensor();
         }
         return answer;
       }},
      {"shuffle not undone in backward", "shuffle", "finite differences", spoiling(leave_gradients_shuffled)},
      {"v's gradient not perpendicular to v",
       {{"name", "weight_norm"}, {"init", "none"}},
       "finite differences",
       [](const LayerCase& c, int ranks) {
         LayerAnswer answer = apply_layer(c, ranks);
         const at::Tensor along = c.conv->v / c.conv->v.flatten(1).square().sum(1).view({-1, 1, 1, 1});
         for (LayerStepAnswer& step : answer.steps) {
           if (step.v_gradient.defined()) {
             step.v_gradient =
                 step.v_gradient + (c.conv->gain * step.gain_gradient).view({-1, 1, 1, 1}) * along;
           }
         }
         return answer;
       }},
  });
}

TEST(PlantedFaults, InWhatMustStayAsItIsAreCaught) {
  expect_caught({
      {"evaluation exchanges", "sync", "evaluation",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (step.mode == Mode::evaluate_saved) {
           answer.collectives.push_back({"all_gather", 17, Purpose::statistics});
         }
       })},
      {"evaluation remembers", "per_tower", "evaluation",
       [](const LayerCase& c, int ranks) {
         LayerCase changed = c;
         for (LayerStep& step : changed.steps) {
           step.mode = Mode::train;
         }
         return apply_layer(changed, ranks);
       }},
      {"one value per channel accepted", "per_tower", "one value per channel", one_value_accepted},
      {"an empty tower's gradient forgotten", "sync", "empty towers",
       spoiling([](const LayerStep& step, LayerStepAnswer& answer) {
         if (step.inputs.front().size(0) == 0 && !answer.input_gradients.empty()) {
           answer.input_gradients.front().reset();
         }
       })},
      {"half precision promoted", "sync", "half precision",
       spoiling([](const LayerStep&, LayerStepAnswer& answer) {
         for (at::Tensor& y : answer.outputs) {
           y = y.scalar_type() == at::kHalf ? y.to(at::kFloat) : y;
         }
       })},
      {"channels_last given back contiguous", "sync", "channels last",
       spoiling([](const LayerStep&, LayerStepAnswer& answer) {
         for (at::Tensor& y : answer.outputs) {
           y = y.contiguous();
         }
       })},
  });
}

}  // namespace
}  // namespace bnlab
