#include "tests/verify/planted_faults.hpp"

#include <torch/types.h>

#include "harness/support/error.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {

namespace {

// A channel vector of the case, or what stands for a missing one; all cases have 8 channels.
at::Tensor given_or(const at::Tensor& given, double otherwise) {
  return given.defined() ? given : at::full({8}, otherwise, at::kDouble);
}

// Moments per channel of one tower: mean and mean of squares.
std::pair<at::Tensor, at::Tensor> first_two_moments(const at::Tensor& x) {
  return {rows(x).mean(1), rows(x).square().mean(1)};
}

void leave_gradients_shuffled(const LayerStep& step, LayerStepAnswer& answer) {
  if (answer.permutation.empty() || answer.input_gradients.empty()) return;
  std::vector<int64_t> sizes;
  for (const at::Tensor& x : step.inputs) sizes.push_back(x.size(0));
  answer.input_gradients = at::cat(answer.input_gradients)
                               .index_select(0, at::tensor(answer.permutation, at::kLong))
                               .split_with_sizes(sizes);
}

}  // namespace

Applier with_option(const std::string& key, const Json& value) {
  return [=](const LayerCase& c, int ranks) {
    LayerCase changed = c;
    changed.strategy[key] = value;
    return apply_layer(changed, ranks);
  };
}

Applier spoiling(const std::function<void(const LayerStep&, LayerStepAnswer&)>& spoil) {
  return [=](const LayerCase& c, int ranks) {
    LayerAnswer answer = apply_layer(c, ranks);
    for (size_t k = 0; k < c.steps.size(); ++k) spoil(c.steps[k], answer.steps[k]);
    return answer;
  };
}

Applier gradients_of(const Applier& other) {
  return [=](const LayerCase& c, int ranks) {
    LayerAnswer answer = apply_layer(c, ranks);
    const LayerAnswer wrong = other(c, ranks);
    for (size_t k = 0; k < c.steps.size(); ++k)
      answer.steps[k].input_gradients = wrong.steps[k].input_gradients;
    return answer;
  };
}

int64_t elements(const at::Tensor& x) {
  return x.size(0) == 0 ? 0 : x.numel() / x.size(1);
}

Applier writing(const std::function<void(const LayerStep&, at::Tensor& mean, at::Tensor& var)>& spoil) {
  return [=](const LayerCase& c, int ranks) {
    LayerAnswer answer = apply_layer(c, ranks);
    at::Tensor sound_mean = given_or(c.running_mean, 0), sound_var = given_or(c.running_var, 1);
    at::Tensor mean = sound_mean, var = sound_var;
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
      const at::Tensor scale =
          given_or(c.weight, 1) / (at::stack(squares).mean(0) - m.square() + 1e-5).sqrt();
      const at::Tensor y = (x - by_channel(m, x)) * by_channel(scale, x) + by_channel(given_or(c.bias, 0), x);
      answer.steps[k].outputs[t] = c.activation == Activation::relu ? y.relu() : y;
    }
  }
  return answer;
}

LayerAnswer eps_outside_the_root(const LayerCase& c, int ranks) {
  LayerAnswer answer = apply_layer(c, ranks);
  for (size_t k = 0; k < c.steps.size(); ++k) {
    for (size_t t = 0; t < c.towers(); ++t) {
      const at::Tensor& x = c.steps[k].inputs[t];
      at::Tensor& y = answer.steps[k].outputs[t];
      if (x.size(0) > 0 && c.steps[k].mode == Mode::train) {
        const auto [mean, square] = first_two_moments(x);
        const at::Tensor var = square - mean.square(), bias = by_channel(given_or(c.bias, 0), y);
        y = (y - bias) * by_channel((var + 1e-5).sqrt() / (var.sqrt() + 1e-5), y) + bias;
      }
    }
  }
  return answer;
}

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

LayerAnswer gradients_left_shuffled(const LayerCase& c, int ranks) {
  return spoiling(leave_gradients_shuffled)(c, ranks);
}

LayerAnswer strided_virtual_batches(const LayerCase& c, int ranks) {
  const auto regrouped = [](std::vector<at::Tensor>& towers, bool back) {
    for (at::Tensor& t : towers) {
      if (!t.defined() || t.size(0) % 2 != 0)
        continue;  // no gradient; an evaluation, which has no virtual batches
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

LayerAnswer one_value_accepted(const LayerCase& c, int ranks) {
  try {
    return apply_layer(c, ranks);
  } catch (const Error&) {
    LayerCase evaluation = c;
    for (LayerStep& step : evaluation.steps) step.mode = Mode::evaluate_saved;
    return apply_layer(evaluation, ranks);
  }
}

// Adds back what the derivative of the deviation takes from v's gradient: with w = (v - m) / d its share is
// (v - m) ((v - m) . dv) / (n eps), since (v - m) . dv = (v - m) . dw eps / d^3.
LayerAnswer filters_deviations_as_constants(const LayerCase& c, int ranks) {
  LayerAnswer answer = apply_layer(c, ranks);
  const at::Tensor v = c.conv->v.flatten(1), centred = v - v.mean(1, true);
  for (LayerStepAnswer& step : answer.steps) {
    if (!step.v_gradient.defined()) continue;
    const at::Tensor along = (centred * step.v_gradient.flatten(1)).sum(1, true);
    const double eps = c.strategy.at("eps").get<double>(), n = static_cast<double>(v.size(1));
    step.v_gradient = step.v_gradient + (centred * along / (n * eps)).view_as(c.conv->v);
  }
  return answer;
}

// The samples of each tower side by side as one.
LayerAnswer whole_tower_as_one_response(const LayerCase& c, int ranks) {
  LayerCase changed = c;
  const auto joined_up = [](std::vector<at::Tensor>& towers) {
    for (at::Tensor& t : towers)
      t = t.defined() && t.size(0) > 0 ? t.transpose(0, 1).flatten(1).unsqueeze(0).contiguous() : t;
  };
  const auto taken_apart = [](std::vector<at::Tensor>& towers, const std::vector<at::Tensor>& like) {
    for (size_t t = 0; t < towers.size(); ++t) {
      std::vector<int64_t> sizes = like[t].sizes().vec();
      std::swap(sizes[0], sizes[1]);
      towers[t] =
          like[t].size(0) > 0 ? towers[t].squeeze(0).view(sizes).transpose(0, 1).contiguous() : like[t];
    }
  };
  for (LayerStep& step : changed.steps) {
    joined_up(step.inputs);
    joined_up(step.gradients);
  }
  LayerAnswer answer = apply_layer(changed, ranks);
  for (size_t s = 0; s < c.steps.size(); ++s) {
    taken_apart(answer.steps[s].outputs, c.steps[s].inputs);
    taken_apart(answer.steps[s].input_gradients, c.steps[s].inputs);
  }
  return answer;
}

}  // namespace bnlab
