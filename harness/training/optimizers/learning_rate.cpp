#include "harness/training/optimizers/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

namespace bnlab {

void LearningRate::describe(OptionVisitor& option) {
  option("lr", lr, "learning rate after the warm-up").above(0);
  option("warmup_steps", warmup_steps, "steps over which the rate rises linearly to lr")
      .at_least(0)
      .at_most(1e9);
  option("schedule", schedule,
         "poly: lr (1 - step/steps)^power; cosine: lr (1 + cos(pi step/steps))/2; step: lr, times gamma from "
         "each milestone on; constant: lr throughout");
  option("power", power, "exponent of the poly schedule").above(0);
  option("lr_floor", lr_floor, "what the rate of the schedules poly and cosine falls to").at_least(0);
  option("milestones", milestones, "of the schedule step: fractions of the run, rising").above(0).below(1);
  option("gamma", gamma, "of the schedule step: factor at each milestone").above(0);
}

void LearningRate::check(Problems& problems) const {
  const bool falls_to_floor = schedule == Schedule::poly || schedule == Schedule::cosine;
  const std::string named = "where the schedule is " + name_of(schedule);
  if (lr_floor > 0 && !falls_to_floor)
    problems.add("lr_floor", "expected 0 " + named + ", got " + shown(lr_floor));
  else if (lr_floor > lr)
    problems.add("lr_floor", "expected at most lr, got " + shown(lr_floor));
  if (schedule != Schedule::poly && power != LearningRate().power)
    problems.add("power", "expected none " + named + ", got " + shown(power));
  if (schedule != Schedule::step && gamma != LearningRate().gamma)
    problems.add("gamma", "expected none " + named + ", got " + shown(gamma));
  if (schedule == Schedule::step && milestones.empty())
    problems.add("milestones", "expected at least one " + named + ", got none");
  else if (schedule != Schedule::step && !milestones.empty())
    problems.add("milestones", "expected none " + named + ", got " + shown(milestones));
  else if (std::ranges::adjacent_find(milestones, std::ranges::greater_equal()) != milestones.end())
    problems.add("milestones", "expected each above the one before it, got " + shown(milestones));
}

double LearningRate::at(int64_t step, int64_t steps) const {
  const double t = static_cast<double>(step) / static_cast<double>(steps);
  const double warm =
      step < warmup_steps ? static_cast<double>(step + 1) / static_cast<double>(warmup_steps) : 1;
  const auto between = [&](double f) { return lr * warm * f + lr_floor * warm * (1 - f); };
  switch (schedule) {
    case Schedule::poly:
      return between(std::pow(1 - t, power));
    case Schedule::cosine:
      return between((1 + std::cos(std::numbers::pi * t)) / 2);
    case Schedule::step: {
      const auto reached = [&](double milestone) {
        return static_cast<double>(step) >= std::round(milestone * static_cast<double>(steps));
      };
      return lr * warm * std::pow(gamma, std::ranges::count_if(milestones, reached));
    }
    case Schedule::constant:
      break;
  }
  return lr * warm;
}

}  // namespace bnlab
