#include "harness/training/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "harness/components/parameters.hpp"
#include "harness/error.hpp"

namespace bnlab {
namespace {

bool begins_with(const std::string& name, const std::string& prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

bool belongs_to_norm(const std::string& name, const std::vector<std::string>& norm_sites) {
  return std::any_of(norm_sites.begin(), norm_sites.end(),
                     [&](const std::string& site) { return begins_with(name, site + "."); });
}

// The group with the longest prefix that the name begins with; null if there is none.
const Json* group_of(const std::string& name, const Json& groups) {
  const Json* best = nullptr;
  size_t longest = 0;
  for (const Json& group : groups) {
    const std::string prefix = group.at("prefix");
    if (begins_with(name, prefix) && (best == nullptr || prefix.size() > longest)) {
      best = &group;
      longest = prefix.size();
    }
  }
  return best;
}

void check_groups(const Json& groups, const std::vector<NamedTensor>& parameters) {
  std::set<const Json*> used;
  std::set<std::string> beginnings;
  for (const NamedTensor& p : parameters) {
    used.insert(group_of(p.name, groups));
    beginnings.insert(p.name.substr(0, p.name.find('.')));
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (used.count(&groups[i]) > 0) {
      continue;
    }
    std::string known;
    for (const std::string& beginning : beginnings) {
      known += (known.empty() ? "" : ", ") + beginning;
    }
    throw Error(Error::Kind::refused,
                "optimizer.groups[" + std::to_string(i) + "].prefix: no parameter is left for " +
                    shown(groups[i].at("prefix")) +
                    " (the longest prefix of its name decides); names begin with: " + known);
  }
}

}  // namespace

double learning_rate(const Json& optimizer, int64_t step, int64_t steps) {
  double lr = optimizer.at("lr").get<double>();
  const auto warmup = optimizer.at("warmup_steps").get<int64_t>();
  if (step < warmup) {
    lr *= static_cast<double>(step + 1) / static_cast<double>(warmup);
  }
  if (optimizer.at("schedule") == "poly") {
    lr *= std::pow(1 - static_cast<double>(step) / static_cast<double>(steps),
                   optimizer.at("power").get<double>());
  }
  return lr;
}

Sgd::Sgd(const Json& optimizer, std::vector<NamedTensor> parameters,
         const std::vector<std::string>& norm_sites)
    : momentum_(optimizer.at("momentum").get<double>()), nesterov_(optimizer.at("nesterov").get<bool>()) {
  const double norm_multiplier = optimizer.at("norm_lr_multiplier");
  const bool decay_all = optimizer.at("decay_norm_and_bias");
  const Json& groups = optimizer.at("groups");
  check_groups(groups, parameters);
  for (NamedTensor& p : parameters) {
    double multiplier = belongs_to_norm(p.name, norm_sites) ? norm_multiplier : 1;
    double decay = optimizer.at("weight_decay");
    if (const Json* group = group_of(p.name, groups)) {
      multiplier *= group->at("lr_multiplier").get<double>();
      decay = group->at("weight_decay").is_null() ? decay : group->at("weight_decay").get<double>();
    }
    const at::Tensor momentum = at::zeros_like(p.tensor);
    const bool decays = decay_all || p.tensor.dim() > 1;
    slots_.push_back({std::move(p), momentum, multiplier, decays ? decay : 0});
  }
}

void Sgd::step(double lr, const std::function<bool(const std::string&)>& trainable) {
  const at::NoGradGuard no_grad;
  struct Lists {
    std::vector<at::Tensor> weights, gradients, momenta;
  };
  std::map<std::pair<double, double>, Lists> classes;  // of one rate and one decay: one fused update each
  for (const Slot& slot : slots_) {
    if (trainable(slot.parameter.name)) {
      Lists& lists = classes[{slot.lr_multiplier, slot.weight_decay}];
      lists.weights.push_back(slot.parameter.tensor);
      lists.gradients.push_back(slot.parameter.tensor.grad());
      if (momentum_ != 0) {
        lists.momenta.push_back(slot.momentum);
      }
    }
  }
  for (const auto& [rates, lists] : classes) {
    const auto& [multiplier, decay] = rates;
    at::_fused_sgd_(lists.weights, lists.gradients, lists.momenta, decay, momentum_, multiplier * lr,
                    /*dampening=*/0.0, nesterov_, /*maximize=*/false, /*is_first_step=*/false);
  }
}

std::vector<at::Tensor> Sgd::momenta() const {
  std::vector<at::Tensor> all;
  for (const Slot& slot : slots_) {
    all.push_back(slot.momentum);
  }
  return all;
}

}  // namespace bnlab
