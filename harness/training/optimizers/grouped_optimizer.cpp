#include "harness/training/optimizers/grouped_optimizer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"

namespace bnlab {
namespace {

bool begins_with(const std::string& name, const std::string& prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

bool belongs_to_norm(const std::string& name, const std::vector<NormSite>& norm_sites) {
  return std::ranges::any_of(norm_sites,
                             [&](const NormSite& site) { return begins_with(name, site.name + "."); });
}

// The group with the longest prefix that the name begins with; null if there is none.
const ParameterGroup* group_of(const std::string& name, const std::vector<ParameterGroup>& groups) {
  const ParameterGroup* best = nullptr;
  for (const ParameterGroup& group : groups) {
    if (begins_with(name, group.prefix) && (best == nullptr || group.prefix.size() > best->prefix.size())) {
      best = &group;
    }
  }
  return best;
}

// Scales the gradients by min(1, limit / (their norm + 1e-6)), as PyTorch's clip_grad_norm_ does.
void clip_gradients(const Tensors& gradients, double limit) {
  at::_foreach_mul_(gradients, (limit / (total_norm(gradients) + 1e-6)).clamp_max(1));
}

// Refuses a group that gets no parameter.
void check_groups(const std::vector<ParameterGroup>& groups, const std::vector<std::string>& names) {
  std::set<const ParameterGroup*> used;
  std::set<std::string> beginnings;
  for (const std::string& name : names) {
    used.insert(group_of(name, groups));
    beginnings.insert(name.substr(0, name.find('.')));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (used.count(&groups[i]) == 0) {
      throw Error(Error::Kind::refused, "optimizer.groups[" + std::to_string(i) +
                                            "].prefix: no parameter is left for " + shown(groups[i].prefix) +
                                            " (the longest prefix of its name decides); names begin with: " +
                                            joined({beginnings.begin(), beginnings.end()}));
    }
  }
}

}  // namespace

void ParameterGroup::describe(OptionVisitor& option) {
  option("prefix", prefix, "of the names of the group's parameters").not_empty().needed();
  option("lr_multiplier", lr_multiplier, "of the rate").at_least(0);
  option("weight_decay", weight_decay, "in place of the optimizer's; null: that one").at_least(0);
}

void OptimizerOptions::describe(OptionVisitor& option) {
  rate.describe(option);
  option("decay_norm_and_bias", decay_norm_and_bias, "whether norm parameters and biases decay too");
  option("norm_lr_multiplier", norm_lr_multiplier, "of the rate of parameters at norm sites").at_least(0);
  option("groups", groups, "parameters by the beginning of their names; the longest prefix counts");
  option("clip_gradient_norm", clip_gradient_norm,
         "largest norm of all gradients together; longer ones are shortened to it; null: no limit")
      .above(0);
}

void OptimizerOptions::check(const RunOutline&, Problems& problems) const {
  rate.check(problems);
}

GroupedOptimizer::GroupedOptimizer(const OptimizerOptions& options, const Context& context)
    : options_(options), steps_(context.steps) {
  check_groups(options.groups, context.parameters.keys());
  for (const auto& [name, weight] : context.parameters.pairs()) {
    double multiplier = belongs_to_norm(name, context.norm_sites) ? options.norm_lr_multiplier : 1;
    double decay = options.weight_decay;
    if (const ParameterGroup* group = group_of(name, options.groups)) {
      multiplier *= group->lr_multiplier;
      decay = group->weight_decay.value_or(decay);
    }
    const bool decays = options.decay_norm_and_bias || weight.dim() > 1;
    slots_.push_back({name, weight, multiplier, decays ? decay : 0});
  }
}

double GroupedOptimizer::learning_rate(int64_t step) const {
  return options_.rate.at(step, steps_);
}

void GroupedOptimizer::step(int64_t step, const Trainable& trainable) {
  const at::NoGradGuard no_grad;
  std::map<std::pair<double, double>, Share> shares;  // by multiplier and decay
  Tensors gradients;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (const Slot& slot = slots_[i]; trainable(slot.name)) {
      Share& share = shares[{slot.lr_multiplier, slot.weight_decay}];
      share.places.push_back(i);
      share.weights.push_back(slot.weight);
      share.gradients.push_back(slot.weight.grad());
      gradients.push_back(slot.weight.grad());
    }
  }
  if (options_.clip_gradient_norm && !gradients.empty()) {
    clip_gradients(gradients, *options_.clip_gradient_norm);
  }
  for (auto& [multiplier_and_decay, share] : shares) {
    share.rate = multiplier_and_decay.first * learning_rate(step);
    share.decay = multiplier_and_decay.second;
    update(share);
  }
}

Tensors GroupedOptimizer::zeros() const {
  return mapped(slots_, [](const Slot& slot) { return at::zeros_like(slot.weight); });
}

Tensors GroupedOptimizer::picked(const Tensors& all, const Share& share) {
  return mapped(share.places, [&](size_t place) { return all[place]; });
}

at::Tensor total_norm(const Tensors& gradients) {
  const at::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(gradients, 2)).norm();
}

}  // namespace bnlab
