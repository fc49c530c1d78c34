#include "tests/strategies/case_for.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace bnlab {
namespace {

// What a strategy's layer holds, as its reference answers.
struct Holds {
  bool weight = false, running_mean = false, running_var = false;
};

const Holds& holds(const Json& strategy) {
  static std::map<std::string, Holds> known;
  const auto [found, unknown] = known.try_emplace(strategy.dump());
  if (unknown) {
    const LayerStepAnswer answer = reference_of(strategy)->answer(bare_case(strategy, {})).steps.front();
    found->second = {answer.weight_gradient.defined(), answer.running_mean.defined(),
                     answer.running_var.defined()};
  }
  return found->second;
}

void add_difference(std::vector<std::string>& found, const std::string& where, const at::Tensor& actual,
                    const at::Tensor& expected, double bound) {
  std::ostringstream line;
  line << where << ": ";
  if (actual.defined() != expected.defined()) {
    line << (actual.defined() ? "there, but not expected" : "missing");
  } else if (!actual.defined()) {
    return;
  } else if (actual.sizes() != expected.sizes()) {
    line << "shape " << actual.sizes() << " instead of " << expected.sizes();
  } else {
    const double off = deviation(actual, expected);
    if (off <= bound) {
      return;
    }
    line << "off by " << off << " (bound " << bound << ")";
  }
  found.push_back(line.str());
}

}  // namespace

Json option(const Json& strategy, const std::string& key) {
  if (strategy.contains(key)) {
    return strategy.at(key);
  }
  return strategy.contains("base") ? option(strategy.at("base"), key) : Json();
}

const Json& innermost(const Json& strategy) {
  return strategy.contains("base") ? innermost(strategy.at("base")) : strategy;
}

bool fits(const Json& strategy, int64_t towers) {
  const Json group = option(strategy, "group_size");
  for (const char* key : {"saved_tower", "tower"}) {
    const Json index = option(strategy, key);
    if (index.is_number() && index.get<int64_t>() >= towers) {
      return false;
    }
  }
  return group.is_null() || towers % group.get<int64_t>() == 0;
}

LayerCase bare_case(const Json& strategy, const CaseShape& shape) {
  LayerCase c;
  c.strategy = strategy;
  c.dtype = shape.dtype;
  c.memory_format = shape.memory_format;
  c.seed = shape.seed;
  const at::Generator generator = at::detail::createCPUGenerator(shape.seed);
  const auto random = [&](const std::vector<int64_t>& sizes) {
    return at::randn(sizes, generator, at::TensorOptions(at::kDouble));
  };
  const int64_t channels = shape.rest.front();
  if (reference_of(strategy)->convolves()) {
    const int64_t out = 4;
    c.conv = LayerConv{random({out, channels, 3, 3}), at::rand({out}, generator) + 0.5, random({out}), 1, 1};
    for (at::Tensor* t : {&c.conv->v, &c.conv->gain, &c.conv->bias}) {
      *t = t->to(shape.dtype == at::kDouble ? at::kDouble : at::kFloat);
    }
  }
  const Json virtual_batch = option(strategy, "virtual_batch");
  for (const Mode mode : shape.modes) {
    LayerStep step;
    step.mode = mode;
    for (size_t t = 0; t < shape.towers.size(); ++t) {
      std::vector<int64_t> sizes{shape.towers[t] *
                                 (virtual_batch.is_null() ? 1 : virtual_batch.get<int64_t>())};
      sizes.insert(sizes.end(), shape.rest.begin(), shape.rest.end());
      // towers with different means: the spread between them counts
      step.inputs.push_back((random(sizes) * 2 + 0.5 * static_cast<double>(t) + shape.mean).to(shape.dtype));
      if (mode == Mode::train) {
        sizes[1] = c.conv ? c.conv->v.size(0) : channels;
        step.gradients.push_back(random(sizes).to(shape.dtype));
      }
    }
    c.steps.push_back(std::move(step));
  }
  return c;
}

LayerCase case_for(const Json& strategy, const CaseShape& shape) {
  LayerCase c = bare_case(strategy, shape);
  const at::Generator generator = at::detail::createCPUGenerator(shape.seed + 1);
  const at::TensorOptions statistics(shape.dtype == at::kDouble ? at::kDouble : at::kFloat);
  const std::vector<int64_t> channels{c.conv ? c.conv->v.size(0) : shape.rest.front()};
  const Holds& there = holds(strategy);
  if (there.weight) {
    c.weight = (at::rand(channels, generator, at::kDouble) + 0.5).to(statistics);
    c.bias = at::randn(channels, generator, at::kDouble).to(statistics);
  }
  if (there.running_mean) {
    c.running_mean = at::randn(channels, generator, at::kDouble).to(statistics);
  }
  if (there.running_var) {
    c.running_var = (at::rand(channels, generator, at::kDouble) + 0.5).to(statistics);
  }
  return c;
}

std::unique_ptr<Reference> reference_of(const Json& strategy) {
  return Registered<Reference>::create({{"name", strategy.at("name")}}, {});
}

double deviation(const at::Tensor& a, const at::Tensor& b, double floor) {
  if (b.numel() == 0) {
    return 0;
  }
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  const double off = (x - y).abs().max().item<double>();
  return std::isnan(off) ? std::numeric_limits<double>::infinity()
                         : off / std::max(y.abs().max().item<double>(), floor);
}

std::vector<std::string> differences(const LayerAnswer& actual, const LayerAnswer& expected, double bound) {
  std::vector<std::string> found;
  if (actual.steps.size() != expected.steps.size()) {
    return {"steps missing"};
  }
  for (size_t k = 0; k < expected.steps.size(); ++k) {
    const LayerStepAnswer &a = actual.steps[k], &e = expected.steps[k];
    const std::string step = "step " + std::to_string(k) + ", ";
    const auto compare_towers = [&](const char* what, const std::vector<at::Tensor>& mine,
                                    const std::vector<at::Tensor>& theirs) {
      for (size_t t = 0; t < std::max(mine.size(), theirs.size()); ++t) {
        add_difference(found, step + what + " of tower " + std::to_string(t),
                       t < mine.size() ? mine[t] : at::Tensor(), t < theirs.size() ? theirs[t] : at::Tensor(),
                       bound);
      }
    };
    compare_towers("output", a.outputs, e.outputs);
    compare_towers("input gradient", a.input_gradients, e.input_gradients);
    add_difference(found, step + "weight gradient", a.weight_gradient, e.weight_gradient, bound);
    add_difference(found, step + "bias gradient", a.bias_gradient, e.bias_gradient, bound);
    add_difference(found, step + "running mean", a.running_mean, e.running_mean, bound);
    add_difference(found, step + "running variance", a.running_var, e.running_var, bound);
    add_difference(found, step + "gradient of v", a.v_gradient, e.v_gradient, bound);
    add_difference(found, step + "gradient of the gain", a.gain_gradient, e.gain_gradient, bound);
    add_difference(found, step + "gain", a.gain, e.gain, bound);
    add_difference(found, step + "bias", a.bias, e.bias, bound);
    if (a.permutation != e.permutation) {
      found.push_back(step + "permutation differs");
    }
  }
  return found;
}

}  // namespace bnlab
