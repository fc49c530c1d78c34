// sgd: stochastic gradient descent with momentum in PyTorch's form, a learning-rate schedule, and groups of
// parameters with rates and decays of their own.
//   buffer <- momentum buffer + (gradient + decay weight), weight <- weight - rate buffer
//   rate(step) = lr min(1, (step + 1) / warmup_steps) (1 - step / steps)^power    (schedule constant: without the power)
// A parameter's rate is multiplied by the lr_multiplier of its group, and by norm_lr_multiplier where it
// belongs to a norm site. Its group is the one with the longest prefix that its name begins with. Its decay
// is the group's weight_decay, else the optimizer's; decay acts on tensors of two dimensions and more, and on
// norm parameters and biases only with decay_norm_and_bias.
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "harness/components/registry.hpp"
#include "harness/error.hpp"
#include "harness/mapped.hpp"
#include "harness/training/optimizer.hpp"

namespace bnlab {
namespace {

BNLAB_CHOICE(Schedule, poly, constant)

struct Group {
  std::string prefix;
  double lr_multiplier = 1;
  std::optional<double> weight_decay;

  void describe(OptionVisitor& option) {
    option("prefix", prefix, "of the names of the group's parameters").not_empty().needed();
    option("lr_multiplier", lr_multiplier, "of the rate").at_least(0);
    option("weight_decay", weight_decay, "in place of the optimizer's; null: that one").at_least(0);
  }
};

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  bool decay_norm_and_bias = false;
  int64_t warmup_steps = 0;
  Schedule schedule = Schedule::poly;
  double power = 0.9;
  double norm_lr_multiplier = 1;
  std::vector<Group> groups;

  void describe(OptionVisitor& option) {
    option("lr", lr, "learning rate after the warm-up").above(0);
    option("momentum", momentum, "weight of the previous update").at_least(0).at_most(1);
    option("nesterov", nesterov, "Nesterov's form of momentum");
    option("weight_decay", weight_decay, "L2 penalty, added to the gradient").at_least(0);
    option("decay_norm_and_bias", decay_norm_and_bias, "whether norm parameters and biases decay too");
    option("warmup_steps", warmup_steps, "steps over which the rate rises linearly to lr")
        .at_least(0)
        .at_most(1e9);
    option("schedule", schedule, "poly: lr (1 - step/steps)^power; constant: lr throughout");
    option("power", power, "exponent of the poly schedule").above(0);
    option("norm_lr_multiplier", norm_lr_multiplier, "of the rate of parameters at norm sites").at_least(0);
    option("groups", groups, "parameters by the beginning of their names; the longest prefix counts");
  }

  void check(const RunOutline&, Problems& problems) const {
    if (nesterov && momentum == 0) {
      problems.add("nesterov", "expected false where momentum is 0, got true");
    }
  }
};

bool begins_with(const std::string& name, const std::string& prefix) {
  return name.compare(0, prefix.size(), prefix) == 0;
}

bool belongs_to_norm(const std::string& name, const std::vector<NormSite>& norm_sites) {
  return std::ranges::any_of(norm_sites,
                             [&](const NormSite& site) { return begins_with(name, site.name + "."); });
}

// The group with the longest prefix that the name begins with; null if there is none.
const Group* group_of(const std::string& name, const std::vector<Group>& groups) {
  const Group* best = nullptr;
  for (const Group& group : groups) {
    if (begins_with(name, group.prefix) && (best == nullptr || group.prefix.size() > best->prefix.size())) {
      best = &group;
    }
  }
  return best;
}

// Refuses a group that gets no parameter.
void check_groups(const std::vector<Group>& groups, const std::vector<std::string>& names) {
  std::set<const Group*> used;
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

class Sgd : public Optimizer {
 public:
  using Options = SgdOptions;

  Sgd(const Options& options, const Context& context) : options_(options), steps_(context.steps) {
    check_groups(options.groups, context.parameters.keys());
    for (const auto& [name, weight] : context.parameters.pairs()) {
      double multiplier = belongs_to_norm(name, context.norm_sites) ? options.norm_lr_multiplier : 1;
      double decay = options.weight_decay;
      if (const Group* group = group_of(name, options.groups)) {
        multiplier *= group->lr_multiplier;
        decay = group->weight_decay.value_or(decay);
      }
      const bool decays = options.decay_norm_and_bias || weight.dim() > 1;
      slots_.push_back({name, weight, at::zeros_like(weight), multiplier, decays ? decay : 0});
    }
  }

  double learning_rate(int64_t step) const override {
    double lr = options_.lr;
    if (step < options_.warmup_steps) {
      lr *= static_cast<double>(step + 1) / static_cast<double>(options_.warmup_steps);
    }
    if (options_.schedule == Schedule::poly) {
      lr *= std::pow(1 - static_cast<double>(step) / static_cast<double>(steps_), options_.power);
    }
    return lr;
  }

  void step(int64_t step, const Trainable& trainable) override {
    const at::NoGradGuard no_grad;
    struct Lists {
      std::vector<at::Tensor> weights, gradients, momenta;
    };
    std::map<std::pair<double, double>, Lists> classes;  // of one rate and one decay: one fused update each
    for (const Slot& slot : slots_) {
      if (trainable(slot.name)) {
        Lists& lists = classes[{slot.lr_multiplier, slot.weight_decay}];
        lists.weights.push_back(slot.weight);
        lists.gradients.push_back(slot.weight.grad());
        if (options_.momentum != 0) {
          lists.momenta.push_back(slot.momentum);
        }
      }
    }
    for (const auto& [rates, lists] : classes) {
      const auto& [multiplier, decay] = rates;
      at::_fused_sgd_(lists.weights, lists.gradients, lists.momenta, decay, options_.momentum,
                      multiplier * learning_rate(step), /*dampening=*/0.0, options_.nesterov,
                      /*maximize=*/false, /*is_first_step=*/false);
    }
  }

  std::vector<at::Tensor> state() const override { return mapped(slots_, &Slot::momentum); }

 private:
  struct Slot {
    std::string name;
    at::Tensor weight, momentum;
    double lr_multiplier;
    double weight_decay;
  };

  Options options_;
  int64_t steps_;
  std::vector<Slot> slots_;
};

const Registered<Optimizer> entry{
    {.name = "sgd",
     .summary = "stochastic gradient descent with momentum (PyTorch's form) and a learning-rate schedule"},
    make<Optimizer, Sgd>};

}  // namespace
}  // namespace bnlab
