// single_tower: every tower normalises by its own moments, and one tower updates the only pair of running
// statistics. The multi-tower TensorFlow examples advise it: a factor T fewer updates, and "one tower is
// enough unless there is skew in your partitioning".
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::single_tower {

struct Options : BnOptions {
  int64_t tower = 0;

  void describe(OptionVisitor& option) {
    option("tower", tower, "tower that updates the running statistics").at_least(0);
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    check_tower("tower", tower, run, problems);
  }

  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("single_tower");
    rules.remember = Remember::tower;
    rules.saved_tower = tower;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "single_tower",
     .summary =
         "every tower normalises by its own moments; one tower updates the only pair of running statistics",
     .source = "TensorFlow's multi-tower examples: the recommended answer",
     .formula = "y as per_tower\n"
                "running <- (1 - momentum) running + momentum (m_s, n_s/(n_s - 1) v_s), s = tower",
     .exchanges = "none",
     .use = "as the classic multi-tower recipe; trains and saves what per_tower does",
     .limits = "as per_tower: fails where that tower's share of the data is not like the rest"},
    make_bn_strategy<Options>};

}  // namespace bnlab::single_tower
