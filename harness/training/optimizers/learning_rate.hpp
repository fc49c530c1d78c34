// The learning rate of every step: a warm-up and a schedule. Optimizers embed these options among their own.
//   rate(step) = min(1, (step + 1) / warmup_steps) (lr f + lr_floor (1 - f))
// with t = step / steps and
//   constant  f = 1
//   poly      f = (1 - t)^power
//   cosine    f = (1 + cos(pi t)) / 2
//   step      f = gamma^(number of milestones m reached); m is reached at step m * steps, rounded
#pragma once

#include <cstdint>
#include <vector>

#include "harness/components/options.hpp"

namespace bnlab {

BNLAB_CHOICE(Schedule, poly, constant, step, cosine)

struct LearningRate {
  double lr = 0.1;
  int64_t warmup_steps = 0;
  Schedule schedule = Schedule::poly;
  double power = 0.9;
  double lr_floor = 0;
  std::vector<double> milestones;  // fractions of the run
  double gamma = 0.1;

  void describe(OptionVisitor& option);
  void check(Problems& problems) const;

  // The rate of a step of a run that has `steps` of them.
  double at(int64_t step, int64_t steps) const;
};

}  // namespace bnlab
