// averaged: every tower normalises by its own moments; the running statistics remember all towers.
//   merge "mean":   the plain mean over towers of m_t and of the unbiased v_t (needs no exchange per step)
//   merge "pooled": the pooled mean and unbiased pooled variance M / (N - 1), which adds the spread of the
//                   towers' means (law of total variance); one exchange per site and step
// As SyncReplicasOptimizer(variables_to_average) and Torch's synchronised running statistics.
#include "harness/registry.hpp"
#include "strategies/tower_strategy.hpp"

namespace bnlab {
namespace {

class Averaged : public TowerStrategy {
 public:
  Averaged(const Json& options, const Context& context) : TowerStrategy(rules(options), context) {}

 private:
  static Rules rules(const Json& options) {
    Rules rules = shared_rules(options);
    rules.normalise_by = NormaliseBy::own;
    rules.remember = options.at("merge") == "mean" ? Remember::mean : Remember::pooled;
    return rules;
  }
};

const Registered<Strategy> entry{
    {"averaged", "every tower normalises by its own moments; running statistics average all towers",
     tower_parameters({Parameter::choice("merge", "mean", {"mean", "pooled"},
                                         "plain mean over towers, or pooled (law of total variance)")}),
     "SyncReplicasOptimizer, Torch, timm --dist-bn reduce"},
    make<Strategy, Averaged>};

}  // namespace
}  // namespace bnlab
