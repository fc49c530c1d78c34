// every_tower: every tower normalises by its own moments; there is one pair of running statistics, and every
// tower updates it in turn, in tower order. What collecting the update ops of all towers does in the
// multi-tower TensorFlow examples: T updates a step, so with momentum a the pair forgets as fast as one
// update with 1 - (1 - a)^T would. A tower's update weighs a (1 - a)^(updates after it).
#include "harness/registry.hpp"
#include "strategies/tower_strategy.hpp"

namespace bnlab {
namespace {

class EveryTower : public TowerStrategy {
 public:
  EveryTower(const Json& options, const Context& context) : TowerStrategy(rules(options), context) {}

 private:
  static Rules rules(const Json& options) {
    Rules rules = shared_rules(options);
    rules.normalise_by = NormaliseBy::own;
    rules.remember = Remember::every;
    return rules;
  }
};

const Registered<Strategy> entry{
    {"every_tower",
     "every tower normalises by its own moments; all towers update the running statistics in turn",
     tower_parameters(), "TensorFlow's multi-tower examples, update ops of all towers"},
    make<Strategy, EveryTower>};

}  // namespace
}  // namespace bnlab
