// What the strategies of the BN family share: their options, and how they make BnLayers by their Rules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_layer.hpp"
#include "strategies/engine/bn_statistics.hpp"

namespace bnlab {

class BnStrategy : public Strategy {
 public:
  BnStrategy(Rules rules, const Context& context)
      : Strategy(context),
        rules_(std::make_shared<const Rules>(std::move(rules))),
        statistics_(context.statistics) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override { return added<BnLayer>(site); }
  RunningStatistics* running_statistics() override { return &statistics_; }
  StepWork work(const Step& step) const override;
  bool moves_rows() const override;
  std::vector<std::string> notes() const override;

 protected:
  template <class L>
  std::shared_ptr<L> added(const NormSite& site) {
    auto layer = std::make_shared<L>(site, rules_at(site, rules_), context_);
    statistics_.add(layer->statistics());
    return layer;
  }

 private:
  std::shared_ptr<const Rules> rules_;
  BnStatistics statistics_;
};

// Which variance the running statistics remember: M2 / (n - 1), as PyTorch does, or M2 / n, which also
// normalises, as TensorFlow and Keras do in most of their paths.
BNLAB_CHOICE(RunningVariance, unbiased, biased)

// Whether what the running statistics begin with fades, or weighs nothing.
BNLAB_CHOICE(Running, fading, zero_debias)

// The options that every member takes, after its own.
struct BnOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  RunningVariance running_variance = RunningVariance::unbiased;
  Running running = Running::fading;
  bool affine = true;

  void describe(OptionVisitor& option);
  void check(const RunOutline& run, Problems& problems) const;
  bool has_running_statistics() const { return true; }
  // Rules with these options filled in: local moments, otherwise as Rules begin.
  Rules shared_rules(const std::string& strategy) const;
};

// Complains unless `tower` is one of the run's towers.
void check_tower(const char* key, int64_t tower, const RunOutline& run, Problems& problems);

// The maker of a strategy that its rules describe completely: Options::rules(context).
template <class Options>
std::unique_ptr<Strategy> make_bn_strategy(const Options& options, const Strategy::Context& context) {
  return std::make_unique<BnStrategy>(options.rules(context), context);
}

}  // namespace bnlab
