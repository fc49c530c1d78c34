// ghost: every tower normalises virtual batches of `virtual_batch` consecutive samples apart; the running
// statistics remember the plain mean over all virtual batches of all towers (ghost batch norm). A tower of
// n samples behaves like n / virtual_batch towers under `averaged`.
#include "harness/components/registry.hpp"
#include "strategies/engine/bn_strategy.hpp"

namespace bnlab {
namespace {

Rules rules(const Json& options, const Strategy::Context&) {
  Rules rules = shared_rules(options);
  rules.remember = Remember::mean;
  rules.virtual_batch = options.at("virtual_batch").get<int64_t>();
  return rules;
}

const Registered<Strategy> entry{
    {"ghost", "virtual batches inside every tower are normalised apart; running statistics average them",
     tower_parameters({Parameter::integer("virtual_batch", 2,
                                          "samples normalised together; must divide every tower's batch")
                           .at_least(1)}),
     "Hoffer, Hubara and Soudry 2017 (ghost batch norm)",
     "y = gamma (x - m_b) / sqrt(v_b + eps) + beta, for every virtual batch b\n"
     "running <- (1 - momentum) running + momentum mean over b of (m_b, n_b/(n_b - 1) v_b)",
     "none", "to get a small batch's noise on a device that holds a large one",
     "loses what small batches lose; refused where virtual_batch does not divide a tower's batch"},
    make_bn_strategy<rules>};

}  // namespace
}  // namespace bnlab
