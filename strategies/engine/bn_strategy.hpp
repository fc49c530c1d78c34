// What the strategies of the BN family share: they make TowerNorm layers by their Rules and, before an
// evaluation, merge the pairs that the ranks keep apart, or recompute them (one collective for all sites).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/tower_norm.hpp"

namespace bnlab {

class TowerStrategy : public Strategy {
 public:
  TowerStrategy(const Rules& rules, const Context& context) : Strategy(context), rules_(rules) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override { return make_layer(site, rules_); }
  bool has_running_statistics() const override { return true; }
  void before_eval(Network& network, const Population& population, Calibration& calibration) override;
  void after_eval() override;
  void buffers_loaded() override;
  void average_running(double decay) override;
  void average_replicas() override;
  int64_t nonfinite_channels() const override;
  bool rows_travel() const override { return rules_.route == Route::gather_activations; }
  std::vector<std::string> notes() const override;

 protected:
  // A layer whose pairs are merged, shown and recomputed with those of all others.
  std::shared_ptr<TowerNorm> make_layer(const NormSite& site, const Rules& rules);

 private:
  void merge(const Population& population);
  void recompute(Network& network, int64_t batches, Calibration& calibration);
  // Sums over the ranks of one [rows, C] tensor per site, in rank order, so that every rank holds the same
  // bits.
  std::vector<at::Tensor> sum_over_ranks(const std::vector<at::Tensor>& of_sites);

  Rules rules_;
  std::vector<std::shared_ptr<TowerNorm>> layers_;
};

// eps, momentum and affine, which every member takes; `own` parameters stand before them.
std::vector<Parameter> tower_parameters(std::vector<Parameter> own = {});

// Rules with the shared parameters of `options` filled in: own moments, otherwise as Rules begin.
Rules shared_rules(const Json& options);

// The maker of a strategy that its rules describe completely.
template <Rules (*rules)(const Json& options, const Strategy::Context& context)>
std::unique_ptr<Strategy> make_tower_strategy(const Json& options, const Strategy::Context& context) {
  return std::make_unique<TowerStrategy>(rules(options, context), context);
}

}  // namespace bnlab
