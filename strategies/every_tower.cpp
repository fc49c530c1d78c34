// every_tower: every tower normalises by its own moments; there is one pair of running statistics, and every
// tower updates it in turn, in tower order. What collecting the update ops of all towers does in the
// multi-tower TensorFlow examples: T updates a step, so with momentum a the pair forgets as fast as one
// update with 1 - (1 - a)^T would. A tower's update weighs a (1 - a)^(updates after it).
#include "harness/components/registry.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.remember = Remember::every;
  return rules;
}

const Registered<Strategy> entry{
    {"every_tower",
     "every tower normalises by its own moments; all towers update the running statistics in turn",
     tower_parameters(), "TensorFlow's multi-tower examples, update ops of all towers",
     "y as per_tower\nfor t = 0 .. T - 1: running <- (1 - momentum) running + momentum (m_t, n_t/(n_t - 1) "
     "v_t)",
     "none", "to reproduce recipes that collect all update ops",
     "forgets T times as fast as its momentum says, and weighs the last towers most"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
