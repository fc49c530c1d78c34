// cmbn: cross mini-batch normalisation, for training that accumulates gradients over the micro-batches of a
// step (spec key accumulate). Every tower normalises its k-th micro-batch by the moments of its first k
// together; those of the earlier ones are constants. So the last passes of a step have better statistics than
// a micro-batch of its own would give, and nothing is exchanged. With one micro-batch per step it is
// per_tower. (Bochkovskiy, Wang and Liao 2020: YOLOv4)
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::cmbn {

struct Options : BnOptions {
  int64_t saved_tower = 0;

  void describe(OptionVisitor& option) {
    option("saved_tower", saved_tower, "tower whose running statistics are saved").at_least(0);
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    check_tower("saved_tower", saved_tower, run, problems);
  }

  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("cmbn");
    rules.saved_tower = saved_tower;
    rules.over_micro_batches = true;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "cmbn",
     .summary = "every tower normalises by the moments of a step's micro-batches so far",
     .source = "Bochkovskiy, Wang and Liao 2020 (YOLOv4, CmBN)",
     .formula =
         "m_tk, v_tk: of tower t's micro-batches 1 to k of the step together, N_tk values\n"
         "y = gamma (x - m_tk) / sqrt(v_tk + eps) + beta, for micro-batch k\n"
         "dx = gamma s (g - A/N_tk - (x - m_tk) s^2 B/N_tk), A and B over micro-batch k alone\n"
         "running <- (1 - momentum) running + momentum (m_sk, N_sk/(N_sk - 1) v_sk), s = saved_tower,\n"
         "  after every micro-batch, or with statistics_per step after the last alone",
     .exchanges = "none",
     .use = "when gradients are accumulated over micro-batches that are too small to be normalised alone",
     .limits = "without accumulate it is per_tower; a step's first micro-batch is normalised as there"},
    make_bn_strategy<Options>};

}  // namespace bnlab::cmbn
