// single_tower: every tower normalises by its own moments; there is one pair of running statistics, and
// one tower updates it. The advice of the multi-tower TensorFlow examples: a factor T fewer updates, and
// "one tower is enough unless there is skew in your partitioning".
#include "harness/components/registry.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.remember = Remember::tower;
  rules.saved_tower = options.at("tower").get<int64_t>();
  return rules;
}

const Registered<Strategy> entry{
    {"single_tower",
     "every tower normalises by its own moments; one tower updates the only pair of running statistics",
     tower_parameters(
         {Parameter::integer("tower", 0, "tower that updates the running statistics").at_least(0)}),
     "TensorFlow's multi-tower examples: the recommended answer",
     "y as per_tower\nrunning <- (1 - momentum) running + momentum (m_s, n_s/(n_s - 1) v_s), s = tower",
     "none", "as the classic multi-tower recipe; trains and saves what per_tower does",
     "as per_tower: fails where that tower's share of the data is not like the rest"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
