// What the strategies of the BN family share: they make TowerNorm layers by their Rules and, before an
// evaluation, merge the pairs that the ranks keep apart (one collective for all sites).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/parameters.hpp"
#include "harness/strategy.hpp"
#include "strategies/tower_norm.hpp"

namespace bnlab {

class TowerStrategy : public Strategy {
 public:
  TowerStrategy(const Rules& rules, const Context& context) : Strategy(context), rules_(rules) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override;
  void before_eval(Network& network) override;
  bool has_running_statistics() const override { return true; }
  int64_t nonfinite_channels() const override;

 private:
  Rules rules_;
  std::vector<std::shared_ptr<TowerNorm>> layers_;
};

// eps, momentum and affine, which every member takes; `own` parameters stand before them.
std::vector<Parameter> tower_parameters(std::vector<Parameter> own = {});

// Rules with the shared parameters of `options` filled in.
Rules shared_rules(const Json& options);

}  // namespace bnlab
