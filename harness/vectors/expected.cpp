// What a case must answer, and how exactly. Each group of ranks by itself goes through the float64 reference.
#include <algorithm>
#include <cmath>
#include <utility>

#include "harness/vectors/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "harness/verify/reference.hpp"

namespace bnlab {
namespace {

using Tensors = std::vector<at::Tensor>;

Tensors of_group(const Tensors& all, size_t group, size_t size) {
  if (all.empty()) return {};
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(group * size);
  return {first, first + static_cast<std::ptrdiff_t>(size)};
}

LayerAnswer answer_of_group(const VectorCase& c, size_t group) {
  LayerCase part = c.layer_case;
  part.strategy["group_size"] = nullptr;
  for (LayerStep& step : part.steps) {
    step.inputs = of_group(step.inputs, group, c.ranks_per_group);
    step.gradients = of_group(step.gradients, group, c.ranks_per_group);
  }
  return reference_of(part.strategy)->answer(part);
}

// [positions, C] of all values.
at::Tensor in_rows(const Tensors& parts) {
  Tensors rows;
  for (const at::Tensor& part : parts) rows.push_back(part.movedim(1, -1).reshape({-1, part.size(1)}));
  return at::cat(rows);
}

double largest(const Tensors& tensors) {  // finite values alone; 0 for none
  double found = 0;
  for (const at::Tensor& t : tensors)
    if (t.defined() && t.numel() > 0)
      found = std::max(found, at::where(t.isfinite(), t, 0).abs().max().item<double>());
  return found;
}

double largest(const at::Tensor& t) {
  return largest(Tensors{t});
}

// How the moments that normalise a pass pass on roundings.
struct Seen {
  double slope = 0;          // largest |weight| / sqrt(var + eps)
  double magnification = 1;  // largest |mean| / sqrt(var + eps): of a rounding of the mean, in the output
};

void see(Seen& seen, const LayerCase& c, const at::Tensor& mean, const at::Tensor& var) {
  const at::Tensor scale = (var + c.strategy.at("eps").get<double>()).rsqrt();
  seen.slope = std::max(seen.slope, largest(c.weight.defined() ? scale * c.weight : scale));
  seen.magnification = std::max(seen.magnification, largest(mean * scale));
}

// The moments of training, or the running statistics before an evaluation.
Seen seen_in(const VectorCase& c, size_t pass, const std::vector<VectorAnswer::Pass>& before) {
  const LayerCase& layer = c.layer_case;
  const LayerStep& step = layer.steps[pass];
  Seen seen;
  for (size_t g = 0; g * c.ranks_per_group < layer.towers(); ++g) {
    if (step.mode != Mode::train) {
      const auto row = static_cast<int64_t>(g);
      see(seen, layer, before.empty() ? layer.running_mean : before.back().running_mean[row],
          before.empty() ? layer.running_var : before.back().running_var[row]);
      continue;
    }
    const at::Tensor rows = in_rows(of_group(step.inputs, g, c.ranks_per_group));
    if (rows.size(0) > 0) {
      const at::Tensor mean = rows.mean(0);
      see(seen, layer, mean, (rows - mean).square().mean(0));
    }
  }
  return seen;
}

// Errors are relative to the largest value of a tensor over all ranks, or to the largest term of which it is
// the sum. Values of a half precision are rounded once more at the end.
Json allowed_in(const VectorCase& c, size_t pass, const VectorAnswer::Pass& expected, const Seen& seen) {
  const LayerCase& layer = c.layer_case;
  const double statistics = statistics_bound(layer.dtype);
  const double far = statistics * seen.magnification;
  const double values = far + (values_bound(layer.dtype) > statistics ? values_bound(layer.dtype) : 0);
  const double weight = layer.weight.defined() ? largest(layer.weight) : 1;
  const double var = largest(expected.running_var);
  Json allowed{{"output", values * std::max(largest(expected.outputs), weight)}};
  if (!layer.steps[pass].gradients.empty()) {
    double dy = 0;  // over all passes that end in the same sums
    for (const LayerStep& step : layer.steps) dy = std::max(dy, largest(step.gradients));
    allowed["grad_input"] = values * std::max(largest(expected.input_gradients), dy * seen.slope);
    if (expected.weight_gradient.defined()) {
      const double bias = std::max(largest(expected.bias_gradient), dy);
      allowed["grad_weight"] = far * std::max(largest(expected.weight_gradient), bias);
      allowed["grad_bias"] = statistics * bias;
    }
  }
  allowed["running_mean"] = statistics * std::max(largest(expected.running_mean), std::sqrt(var));
  allowed["running_var"] = far * var;
  return allowed;
}

// Running statistics of channels with an output that is not finite.
void judge_none_that_are_not_finite(const Tensors& outputs, at::Tensor& mean, at::Tensor& var) {
  const at::Tensor rows = in_rows(outputs);
  if (rows.size(0) > 0) {
    const at::Tensor spoilt = rows.isfinite().all(0).logical_not();
    mean = mean.masked_fill(spoilt, NAN);
    var = var.masked_fill(spoilt, NAN);
  }
}

void add(at::Tensor& sum, const at::Tensor& more) {
  if (more.defined()) sum = sum.defined() ? sum + more : more;
}

}  // namespace

VectorAnswer expected_of(const VectorCase& c) {
  std::vector<LayerAnswer> groups;
  for (size_t g = 0; g * c.ranks_per_group < c.layer_case.towers(); ++g)
    groups.push_back(answer_of_group(c, g));
  VectorAnswer all;
  at::Tensor weight_sum, bias_sum;
  for (size_t p = 0; p < c.layer_case.steps.size(); ++p) {
    VectorAnswer::Pass pass;
    Tensors means, vars;
    for (const LayerAnswer& group : groups) {
      const LayerStepAnswer& step = group.steps[p];
      pass.outputs.insert(pass.outputs.end(), step.outputs.begin(), step.outputs.end());
      pass.input_gradients.insert(pass.input_gradients.end(), step.input_gradients.begin(),
                                  step.input_gradients.end());
      if (!step.input_gradients.empty()) {
        add(weight_sum, step.weight_gradient);
        add(bias_sum, step.bias_gradient);
      }
      means.push_back(step.running_mean);
      vars.push_back(step.running_var);
      judge_none_that_are_not_finite(step.outputs, means.back(), vars.back());
    }
    pass.running_mean = at::stack(means).detach();
    pass.running_var = at::stack(vars).detach();
    if (!c.backward_after_all || p + 1 == c.layer_case.steps.size()) {
      pass.weight_gradient = std::exchange(weight_sum, {});
      pass.bias_gradient = std::exchange(bias_sum, {});
    }
    pass.allowed = allowed_in(c, p, pass, seen_in(c, p, all.passes));
    all.passes.push_back(std::move(pass));
  }
  return all;
}

}  // namespace bnlab
