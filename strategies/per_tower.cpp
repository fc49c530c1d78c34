// per_tower: every tower normalises by its own moments. Data-parallel training does this in Caffe, Torch,
// PyTorch and MXNet when nothing is said; "pseudo-BN" (parts of a batch normalised apart, then joined)
// is the same arithmetic. Each tower has running statistics of its own there, but those of other towers reach
// neither training nor a checkpoint, so only the saved pair is kept here.
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab::per_tower {

struct Options : BnOptions {
  int64_t saved_tower = 0;

  void describe(OptionVisitor& option) {
    option("saved_tower", saved_tower, "tower whose running statistics are saved").at_least(0);
    BnOptions::describe(option);
  }

  void check(const RunOutline& run, Problems& problems) const {
    BnOptions::check(run, problems);
    check_tower("saved_tower", saved_tower, run, problems);
  }

  Rules rules(const Strategy::Context&) const {
    Rules rules = shared_rules("per_tower");
    rules.remember = Remember::tower;
    rules.saved_tower = saved_tower;
    return rules;
  }
};

const Registered<Strategy> entry{
    {.name = "per_tower",
     .summary = "every tower normalises by its own moments; one tower's running statistics are saved",
     .source = "Ioffe and Szegedy 2015, as Caffe, Torch, PyTorch and MXNet run it on several GPUs; "
               "\"pseudo-BN\"",
     .formula = "y = gamma (x - m_t) / sqrt(v_t + eps) + beta, for every tower t\n"
                "running <- (1 - momentum) running + momentum (m_s, n_s/(n_s - 1) v_s), s = saved_tower",
     .exchanges = "none",
     .use = "as the baseline: what data-parallel training does when nothing is said",
     .limits = "loses accuracy at a few values per tower; the saved statistics know one tower's data only"},
    make_bn_strategy<Options>};

}  // namespace bnlab::per_tower
