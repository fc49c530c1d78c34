// last_tower: every tower normalises by its own moments, and the last tower updates the only pair of running
// statistics. The Inception v3 multi-tower example does this: its loop over the towers keeps only the last
// tower's update ops.
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::last_tower {

struct Options : BnOptions {
  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("last_tower");
    rules.remember = Remember::tower;
    rules.saved_tower = -1;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "last_tower",
     .summary = "every tower normalises by its own moments; the last tower updates the only pair of running "
                "statistics",
     .source = "TensorFlow's Inception v3 multi-tower example",
     .formula = "y as per_tower\n"
                "running <- (1 - momentum) running + momentum (m_t, n_t/(n_t - 1) v_t), t = T - 1",
     .exchanges = "none",
     .use = "to reproduce the Inception v3 example; under even shards as good as any one tower",
     .limits = "as single_tower: fails where the last tower's share of the data is not like the rest"},
    make_bn_strategy<Options>};

}  // namespace bnlab::last_tower
