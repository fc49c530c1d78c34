// per_tower: every tower normalises by its own moments and keeps running statistics of its own; those of
// one tower (`saved_tower`) are saved. What data-parallel training does in Caffe, Torch, PyTorch, MXNet and
// Keras when nothing is said; "pseudo-BN" (parts of a batch normalised apart, then joined) is the same
// arithmetic. The pairs of the other towers reach neither training nor a checkpoint, so only the saved
// one is kept.
//   y = gamma (x - m_t) / sqrt(v_t + eps) + beta
#include "harness/components/registry.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.remember = Remember::tower;
  rules.saved_tower = options.at("saved_tower").get<int64_t>();
  return rules;
}

const Registered<Strategy> entry{
    {"per_tower", "every tower normalises by its own moments; one tower's running statistics are saved",
     tower_parameters(
         {Parameter::integer("saved_tower", 0, "tower whose running statistics are saved").at_least(0)}),
     "Ioffe and Szegedy 2015, as Caffe, Torch, PyTorch, MXNet and Keras run it on several GPUs; "
     "\"pseudo-BN\"",
     "y = gamma (x - m_t) / sqrt(v_t + eps) + beta, for every tower t\n"
     "running <- (1 - momentum) running + momentum (m_s, n_s/(n_s - 1) v_s), s = saved_tower",
     "none", "as the baseline: what data-parallel training does when nothing is said",
     "loses accuracy at a few values per tower; the saved statistics know one tower's data only"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
