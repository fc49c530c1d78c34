// averaged: every tower normalises by its own moments; the running statistics remember all towers.
//   merge "mean":   the plain mean over towers of m_t and of the unbiased v_t (needs no exchange per step)
//   merge "pooled": the pooled mean and unbiased pooled variance M / (N - 1), which adds the spread of the
//                   towers' means (law of total variance); one exchange per site and step
// As SyncReplicasOptimizer(variables_to_average) and Torch's synchronised running statistics.
#include "harness/components/registry.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.remember = options.at("merge") == "mean" ? Remember::mean : Remember::pooled;
  return rules;
}

const Registered<Strategy> entry{
    {"averaged", "every tower normalises by its own moments; running statistics average all towers",
     tower_parameters({Parameter::choice("merge", "mean", {"mean", "pooled"},
                                         "plain mean over towers, or pooled (law of total variance)")}),
     "SyncReplicasOptimizer(variables_to_average), Torch, timm --dist-bn reduce",
     "y as per_tower\nmerge mean: running <- (1 - momentum) running + momentum mean over t of (m_t, n_t/(n_t "
     "- 1) v_t)\n"
     "merge pooled: ... + momentum (m, M/(N - 1)), M = sum n_t v_t + sum n_t (m_t - m)^2",
     "none; merge pooled: 1 forward", "when towers see different data and only evaluation suffers",
     "does not help training: each tower still normalises by its own few values"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
