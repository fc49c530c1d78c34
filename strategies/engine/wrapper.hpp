// A strategy around another one: everything is the base's, but for what a wrapper overrides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/components/registry.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

// The option that every wrapper takes, after its own.
struct WrapperOptions {
  Json base = "sync";

  void describe(OptionVisitor& option) {
    option.component("base", base, "strategy", "the strategy that it is built on");
  }
  void check(const RunOutline&, Problems& problems) const {
    if (!facts_of<StrategyFacts>(base).has_running_statistics(base)) {
      problems.add("base", "expected a strategy with running statistics; " +
                               base.at("name").get<std::string>() + " has none");
    }
  }
  bool has_running_statistics() const { return true; }
  bool makes_convolutions() const { return facts_of<StrategyFacts>(base).makes_convolutions(base); }
};

class Wrapper : public Strategy {
 public:
  Wrapper(const WrapperOptions& options, const Context& context)
      : Strategy(context), base_(Registered<Strategy>::create(options.base, context)) {}

  std::shared_ptr<Layer> norm(const NormSite& site) override { return base_->norm(site); }
  std::shared_ptr<Layer> conv(const ConvSite& site) override { return base_->conv(site); }
  Outputs forward(Network& network, const at::Tensor& images, const Pass& pass) override {
    return base_->forward(network, images, pass);
  }
  bool trainable(const std::string& parameter, const Step& step) const override {
    return base_->trainable(parameter, step);
  }
  bool normalises_weights() const override { return base_->normalises_weights(); }
  std::string why_not_alone() const override {
    const std::string why = base_->why_not_alone();
    return why.empty() ? Strategy::why_not_alone() : why;
  }
  StepWork work(const Step& step) const override { return base_->work(step); }
  RunningStatistics* running_statistics() override { return base_->running_statistics(); }
  bool moves_rows() const override { return base_->moves_rows(); }
  std::vector<std::string> notes() const override { return base_->notes(); }

 private:
  std::unique_ptr<Strategy> base_;
};

}  // namespace bnlab
