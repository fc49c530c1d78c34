// averaged: every tower normalises by its own moments, and the running statistics average all towers. The
// plain mean needs no exchange per step; the pooled variance also holds the spread of the towers' means and
// needs one.
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::averaged {

BNLAB_CHOICE(Averaging, mean, pooled)

struct Options : BnOptions {
  Averaging merge = Averaging::mean;

  void describe(OptionVisitor& option) {
    option("merge", merge, "plain mean over towers, or pooled (law of total variance)");
    BnOptions::describe(option);
  }

  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("averaged");
    rules.remember = merge == Averaging::mean ? Remember::mean : Remember::pooled;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "averaged",
     .summary = "every tower normalises by its own moments; running statistics average all towers",
     .source = "SyncReplicasOptimizer(variables_to_average), Torch, timm --dist-bn reduce",
     .formula =
         "y as per_tower\n"
         "merge mean: running <- (1 - momentum) running + momentum mean over t of (m_t, n_t/(n_t - 1) v_t)\n"
         "merge pooled: ... + momentum (m, M/(N - 1)), M = sum n_t v_t + sum n_t (m_t - m)^2",
     .exchanges = "none; merge pooled: 1 forward",
     .use = "when towers see different data and only evaluation suffers",
     .limits = "does not help training: each tower still normalises by its own few values"},
    make_bn_strategy<Options>};

}  // namespace bnlab::averaged
