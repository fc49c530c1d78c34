// A network whose layers a strategy has made, and the strategy: what is trained, evaluated, counted and
// checked.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "harness/strategy.hpp"

namespace bnlab {

class BuiltNetwork {
 public:
  // Makes the network of the layers that it asks for (builder_of in models/model.hpp).
  using Build = std::function<std::shared_ptr<Network>(LayerMaker& layers)>;

  // `strategy`: resolved. Throws Error (refused) where the strategy or the network refuses.
  BuiltNetwork(const Json& strategy, const Strategy::Context& context, const Build& build)
      : strategy_(Registered<Strategy>::create(strategy, context)) {
    ListingMaker layers(*strategy_);
    network_ = build(layers);
    sites_ = layers.sites;
    if (network_->brings_statistics()) start_statistics();
  }

  // The outputs for this rank's samples. Called by every rank, in the same order.
  Outputs forward(const Batch& batch, const Step& step, Mode mode, uint64_t seed = 0,
                  Recompute recompute = Recompute::none) {
    Pass pass = batch.pass(step, mode, seed);
    pass.details.recompute = recompute;
    return strategy_->forward(*network_, batch.images, pass);
  }

  // Called once weights have been put into the network: running statistics start from its buffers.
  void start_statistics() {
    if (RunningStatistics* running = statistics()) running->init_from_buffers(/*steps=*/0);
  }

  Strategy& strategy() const { return *strategy_; }
  Network& network() const { return *network_; }
  RunningStatistics* statistics() const { return strategy_->running_statistics(); }  // may be null
  const std::vector<NormSite>& sites() const { return sites_; }

 private:
  // Hands out the strategy's layers and lists the norm sites on the way.
  struct ListingMaker : LayerMaker {
    explicit ListingMaker(Strategy& strategy) : strategy_(strategy) {}
    std::shared_ptr<Layer> norm(const NormSite& site) override {
      sites.push_back(site);
      return strategy_.norm(site);
    }
    std::shared_ptr<Layer> conv(const ConvSite& site) override { return strategy_.conv(site); }

    Strategy& strategy_;
    std::vector<NormSite> sites;
  };

  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<Network> network_;
  std::vector<NormSite> sites_;
};

}  // namespace bnlab
