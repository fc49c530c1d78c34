#include "harness/training/optimizers/grouped_optimizer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/optimizers/adaptive_clipping.hpp"

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
  for (const ParameterGroup& group : groups)
    if (begins_with(name, group.prefix) && (best == nullptr || group.prefix.size() > best->prefix.size()))
      best = &group;
  return best;
}

// The norm of all gradients together, [].
at::Tensor total_norm(const Tensors& gradients) {
  const at::NoGradGuard no_grad;
  return at::stack(at::_foreach_norm(gradients, 2)).norm();
}

// Scales the gradients by min(1, limit / (their norm + 1e-6)), as PyTorch's clip_grad_norm_ does.
void clip_gradients(const Tensors& gradients, const at::Tensor& norm, double limit) {
  at::_foreach_mul_(gradients, (limit / (norm + 1e-6)).clamp_max(1));
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
  option("clip_gradient_adaptive", clip_gradient_adaptive,
         "largest norm of the gradient of each output's weights, as a share of the norm of these weights; "
         "null: no limit")
      .above(0);
  option("clip_adaptive_skip", clip_adaptive_skip,
         "beginnings of the names of parameters that clip_gradient_adaptive leaves alone");
}

void OptimizerOptions::check(const RunOutline&, Problems& problems) const {
  rate.check(problems);
  if (!clip_gradient_adaptive && clip_adaptive_skip != OptimizerOptions().clip_adaptive_skip) {
    problems.add("clip_adaptive_skip",
                 "has no effect without clip_gradient_adaptive; add that or leave clip_adaptive_skip out");
  }
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
    slots_.push_back(
        {.name = name, .weight = weight, .lr_multiplier = multiplier, .weight_decay = decays ? decay : 0});
  }
  if ((options.clip_gradient_norm || options.clip_gradient_adaptive) && !slots_.empty())
    clipped_norm_ = at::zeros({}, slots_.front().weight.options());
}

double GroupedOptimizer::learning_rate(int64_t step) const {
  return options_.rate.at(step, steps_);
}

void GroupedOptimizer::step(int64_t step, const Trainable& trainable, StepBytes* bytes) {
  const at::NoGradGuard no_grad;
  Shares shares;
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
  if (clipped_norm_.defined()) {
    clipped_norm_.copy_(total_norm(all_gradients()));
    if (options_.clip_gradient_norm && !gradients.empty()) {
      const bool all = gradients.size() == slots_.size();
      clip_gradients(gradients, all ? clipped_norm_ : total_norm(gradients), *options_.clip_gradient_norm);
    }
  }
  if (options_.clip_gradient_adaptive) {
    for (const Slot& slot : slots_) {
      const auto begins = [&](const std::string& prefix) { return begins_with(slot.name, prefix); };
      if (trainable(slot.name) && std::ranges::none_of(options_.clip_adaptive_skip, begins))
        clip_adaptively(slot.weight, slot.weight.grad(), *options_.clip_gradient_adaptive);
    }
  }
  set_rates(shares, step, bytes);
  for (auto& [multiplier_and_decay, share] : shares) {
    share.decay = multiplier_and_decay.second;
    update(share);
  }
}

void GroupedOptimizer::set_rates(Shares& shares, int64_t step, StepBytes* bytes) const {
  std::vector<std::function<double(int64_t)>> rates;
  for (const auto& [multiplier_and_decay, share] : shares) {
    const auto rate = [this, multiplier = multiplier_and_decay.first](int64_t at) {
      return multiplier * learning_rate(at);
    };
    rates.emplace_back(rate);
  }
  if (rates.empty()) return;
  at::Tensor on_device;
  if (bytes != nullptr)
    on_device = numbers_of_step(*bytes, rates, rate_type(), slots_.front().weight.device());
  size_t i = 0;
  for (auto& [multiplier_and_decay, share] : shares) {
    const double rate = rates[i](step);
    if (bytes != nullptr)
      share.rate = on_device[static_cast<int64_t>(i)];
    else
      share.rate = rate_type() == at::kFloat ? static_cast<double>(static_cast<float>(rate)) : rate;
    ++i;
  }
}

bool GroupedOptimizer::can_be_recorded() const {
  return slots_.empty() || slots_.front().weight.is_cpu() || rate_type() == at::kFloat;
}

at::ScalarType GroupedOptimizer::rate_type() const {
  const at::Tensor& weight = slots_.front().weight;
  return weight.is_cpu() ? at::kDouble : weight.scalar_type();
}

at::Tensor GroupedOptimizer::gradient_norm() const {
  return clipped_norm_.defined() ? clipped_norm_ : total_norm(all_gradients());
}

Tensors GroupedOptimizer::all_gradients() const {
  Tensors gradients;
  for (const Slot& slot : slots_)
    if (slot.weight.grad().defined()) gradients.push_back(slot.weight.grad());
  return gradients;
}

Tensors GroupedOptimizer::zeros() const {
  return mapped(slots_, [](const Slot& slot) { return at::zeros_like(slot.weight); });
}

Tensors GroupedOptimizer::picked(const Tensors& all, const Share& share) {
  return mapped(share.places, [&](size_t place) { return all[place]; });
}

}  // namespace bnlab
