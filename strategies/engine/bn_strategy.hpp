// What the strategies of the BN family share: they make BnLayers by their Rules, and keep the running
// statistics of all sites together (one collective for all of them).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_layer.hpp"

namespace bnlab {

class BnStatistics : public RunningStatistics {
 public:
  explicit BnStatistics(Communicator& communicator) : communicator_(communicator) {}

  void add(std::shared_ptr<SiteStatistics> site) { sites_.push_back(std::move(site)); }

  void show(const Population& population, Calibration& calibration) override;
  void show_own() override;
  void start_from_buffers() override;
  void freeze() override;
  void update_average(double decay) override;
  void average_replicas() override;
  void describe(State& state) override;
  int64_t nonfinite_channels() const override;
  std::vector<double> between_sets() const override { return between_sets_; }

 private:
  bool trained() const;
  void merge(const Population& population);
  void recompute(int64_t batches, Calibration& calibration);
  // Sums over the ranks of one [rows, C] tensor per site, in rank order, so that every rank holds the same
  // bits.
  std::vector<at::Tensor> sum_over_ranks(const std::vector<at::Tensor>& of_sites);

  Communicator& communicator_;
  std::vector<std::shared_ptr<SiteStatistics>> sites_;
  bool frozen_ = false;
  std::vector<double> between_sets_;
};

class BnStrategy : public Strategy {
 public:
  BnStrategy(const Rules& rules, const Context& context)
      : Strategy(context), rules_(rules), statistics_(context.statistics) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override;
  RunningStatistics* running_statistics() override { return &statistics_; }
  bool repeats(const Step& step) const override;
  Travel travel() const override { return {rules_.route == Route::gather_activations, {}}; }
  std::vector<std::string> notes() const override;

 private:
  Rules rules_;
  BnStatistics statistics_;
};

// The options that every member takes, after its own.
struct BnOptions {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;
  bool affine = true;

  void describe(OptionVisitor& option);
  bool has_running_statistics() const { return true; }
  // Rules with these options filled in: own moments, otherwise as Rules begin.
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
