// ghost: every tower normalises virtual batches of `virtual_batch` consecutive samples apart (ghost batch
// norm). A tower of n samples behaves like n / virtual_batch towers under `averaged`.
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::ghost {

struct Options : BnOptions {
  int64_t virtual_batch = 2;

  void describe(OptionVisitor& option) {
    option("virtual_batch", virtual_batch, "samples normalised together; must divide every tower's batch")
        .at_least(1);
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    for (size_t t = 0; t < run.samples_per_tower.size(); ++t) {
      const int64_t samples = run.samples_per_tower[t];
      if (samples % virtual_batch != 0) {
        problems.add("virtual_batch", "expected a divisor of the " + std::to_string(samples) +
                                          " samples of tower " + std::to_string(t) + ", got " +
                                          std::to_string(virtual_batch));
        return;
      }
    }
  }

  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("ghost");
    rules.remember = Remember::mean;
    rules.virtual_batch = virtual_batch;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "ghost",
     .summary = "virtual batches inside every tower are normalised apart; running statistics average them",
     .source = "Hoffer, Hubara and Soudry 2017 (ghost batch norm)",
     .formula = "y = gamma (x - m_b) / sqrt(v_b + eps) + beta, for every virtual batch b\n"
                "running <- (1 - momentum) running + momentum mean over b of (m_b, n_b/(n_b - 1) v_b)",
     .exchanges = "none",
     .use = "to get a small batch's noise on a device that holds a large one",
     .limits = "loses what small batches lose; refused where virtual_batch does not divide a tower's batch"},
    make_bn_strategy<Options>};

}  // namespace bnlab::ghost
