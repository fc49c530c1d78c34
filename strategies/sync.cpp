// sync: all towers (or groups of `group_size` consecutive towers) normalise by their pooled moments, as
// one device with the whole batch would; synchronised BN, cross-GPU BN.
//   y = gamma (x - m) / sqrt(v + eps) + beta, m and v over the group
//   dx = gamma s (dy - A/N - (x - m) s^2 B/N), A = sum dy and B = sum dy (x - m) over the group
// gradient own_tower: A and B of the tower alone; stopped: dx = gamma s dy.
// variance averaged: v = sum n_t v_t / N, which leaves out the spread of the towers' means.
#include "harness/error.hpp"
#include "harness/registry.hpp"
#include "strategies/tower_strategy.hpp"

namespace bnlab {
namespace {

class Sync : public TowerStrategy {
 public:
  Sync(const Json& options, const Context& context) : TowerStrategy(rules(options), context) {}

 private:
  static Rules rules(const Json& options) {
    Rules rules = shared_rules(options);
    rules.normalise_by = NormaliseBy::pooled;
    rules.remember = Remember::pooled;
    const auto gradient = options.at("gradient").get<std::string>();
    rules.gradient = gradient == "full"        ? Gradient::full
                     : gradient == "own_tower" ? Gradient::own_tower
                                               : Gradient::stopped;
    rules.variance = options.at("variance") == "pooled" ? Variance::pooled : Variance::averaged;
    rules.group_size = options.at("group_size").is_null() ? 0 : options.at("group_size").get<int64_t>();
    if (rules.gradient == Gradient::own_tower && rules.variance == Variance::averaged) {
      throw Error(
          Error::Kind::refused,
          "sync: gradient own_tower together with variance averaged is not defined; change one of them");
    }
    return rules;
  }
};

const Registered<Strategy> entry{
    {"sync", "all towers of a group normalise by their pooled moments",
     tower_parameters({Parameter::integer("group_size", nullptr, "towers that pool their moments; null: all")
                           .at_least(1)
                           .or_null(),
                       Parameter::choice("route", "all_gather", {"all_gather"}, "how the moments meet"),
                       Parameter::choice("gradient", "full", {"full", "own_tower", "stopped"},
                                         "what passes through the moments in backward"),
                       Parameter::choice("variance", "pooled", {"pooled", "averaged"},
                                         "of the whole group, or the mean of the towers' own variances")}),
     "Peng et al. 2018 (MegDet), Zhang et al. 2018, PyTorch SyncBatchNorm"},
    make<Strategy, Sync>};

}  // namespace
}  // namespace bnlab
