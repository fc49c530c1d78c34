// single_tower: every tower normalises by its own moments; there is one pair of running statistics, and
// one tower updates it. The advice of the multi-tower TensorFlow examples: a factor T fewer updates, and
// "one tower is enough unless there is skew in your partitioning".
#include "harness/registry.hpp"
#include "strategies/tower_strategy.hpp"

namespace bnlab {
namespace {

class SingleTower : public TowerStrategy {
 public:
  SingleTower(const Json& options, const Context& context) : TowerStrategy(rules(options), context) {}

 private:
  static Rules rules(const Json& options) {
    Rules rules = shared_rules(options);
    rules.normalise_by = NormaliseBy::own;
    rules.remember = Remember::tower;
    rules.saved_tower = options.at("tower").get<int64_t>();
    return rules;
  }
};

const Registered<Strategy> entry{
    {"single_tower",
     "every tower normalises by its own moments; one tower updates the only pair of running statistics",
     tower_parameters(
         {Parameter::integer("tower", 0, "tower that updates the running statistics").at_least(0)}),
     "TensorFlow's multi-tower examples"},
    make<Strategy, SingleTower>};

}  // namespace
}  // namespace bnlab
