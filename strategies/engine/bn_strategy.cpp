#include "strategies/engine/bn_strategy.hpp"

#include "strategies/engine/exchange/route.hpp"

namespace bnlab {

StepWork BnStrategy::work(const Step& step) const {
  StepWork work;
  // Averages over replicas move the pairs.
  work.replayable = !context_.replicas && about_route(rules_->route).replayable;
  work.sets_up = step.index == 0;  // the weights of the running pairs
  work.meets = rules_->exchanges_forward() || !context_.shadows.empty();
  if (rules_->renorm) {
    const auto [r, d] = rules_->renorm->limits(step.index);
    work.numbers = {r, d};
  }
  return work;
}

bool BnStrategy::moves_rows() const {
  return about_route(rules_->route).moves_rows;
}

std::vector<std::string> BnStrategy::notes() const {
  const RouteAbout& route = about_route(rules_->route);
  const std::string note = route.note ? route.note(context_.device.is_cpu(), context_.statistics.size()) : "";
  return note.empty() ? std::vector<std::string>() : std::vector{rules_->strategy + ": " + note};
}

void BnOptions::describe(OptionVisitor& option) {
  option("eps", eps, "added to the variance under the root").above(0);
  option("momentum", momentum, "weight of the new value in the running statistics; null: cumulative average")
      .at_least(0)
      .at_most(1);
  option("running_variance", running_variance,
         "what the running statistics remember: M2 / (n - 1), or M2 / n as TensorFlow and Keras have it");
  option("running", running, "what they begin with fades, or weighs nothing, as in TensorFlow");
  option("affine", affine, "whether there are a weight and a bias per channel");
}

void BnOptions::check(const RunOutline&, Problems& problems) const {
  if (running == Running::zero_debias && momentum.value_or(0) == 0) {
    problems.add("running", "expected fading with a momentum of " + std::string(momentum ? "0" : "null") +
                                ", which has nothing to take off, got zero_debias");
  }
}

Rules BnOptions::shared_rules(const std::string& strategy) const {
  Rules rules;
  rules.strategy = strategy;
  rules.eps = eps;
  rules.momentum = momentum;
  rules.ddof = running_variance == RunningVariance::unbiased ? 1 : 0;
  rules.zero_debias = running == Running::zero_debias;
  rules.affine = affine;
  return rules;
}

void check_tower(const char* key, int64_t tower, const RunOutline& run, Problems& problems) {
  const auto towers = static_cast<int64_t>(run.samples_per_tower.size());
  if (towers > 0 && tower >= towers) {
    problems.add(
        key, "expected a tower from 0 to " + std::to_string(towers - 1) + ", got " + std::to_string(tower));
  }
}

}  // namespace bnlab
