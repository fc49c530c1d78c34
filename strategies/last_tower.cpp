// last_tower: every tower normalises by its own moments; there is one pair of running statistics, and the
// last tower updates it. What the Inception v3 multi-tower example does: its loop over the towers keeps only
// the last tower's update ops.
#include "harness/components/registry.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.remember = Remember::tower;
  rules.saved_tower = -1;
  return rules;
}

const Registered<Strategy> entry{
    {"last_tower",
     "every tower normalises by its own moments; the last tower updates the only pair of running statistics",
     tower_parameters(), "TensorFlow's Inception v3 multi-tower example",
     "y as per_tower\nrunning <- (1 - momentum) running + momentum (m_t, n_t/(n_t - 1) v_t), t = T - 1",
     "none", "to reproduce the Inception v3 example; under even shards as good as any one tower",
     "as single_tower: fails where the last tower's share of the data is not like the rest"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
