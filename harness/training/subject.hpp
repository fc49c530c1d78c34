// What a run trains and evaluates: a network whose layers its strategy has made.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/state.hpp"
#include "harness/strategy.hpp"
#include "harness/training/data.hpp"

namespace bnlab {

// Hands out the layers of another maker and lists the norm sites on the way.
class ListingMaker : public LayerMaker {
 public:
  explicit ListingMaker(LayerMaker& layers) : layers_(layers) {}
  std::shared_ptr<Layer> norm(const NormSite& site) override;
  std::shared_ptr<Layer> conv(const ConvSite& site) override { return layers_.conv(site); }
  const std::vector<NormSite>& sites() const { return sites_; }

 private:
  LayerMaker& layers_;
  std::vector<NormSite> sites_;
};

class Subject {
 public:
  // Builds the network, loads the weights that the spec starts from, and takes over rank 0's. Called by every
  // rank. Throws Error where the model, the strategy or the weights refuse.
  Subject(const RunSpec& spec, const Data& data, World& world);

  // The outputs for this rank's samples after `step` training steps, computed in the precision of the run.
  Outputs forward(const Batch& batch, int64_t step, Mode mode);

  bool repeats(int64_t step) const;  // bnlab::repeats
  // Whether the optimizer may change this parameter at this step.
  bool trainable(const std::string& parameter, int64_t step) const;

  // Parameters, buffers, and what the strategy remembers beside them.
  void describe(State& state);

  Network& network() const { return *network_; }
  RunningStatistics* statistics() const { return strategy_->running_statistics(); }  // may be null
  std::vector<std::string> notes() const;  // of the strategy, and of the weights that were loaded
  const std::vector<NormSite>& sites() const { return sites_; }

 private:
  Precision precision_;
  uint64_t seed_;
  at::Device device_;
  int64_t steps_;
  std::unique_ptr<Strategy> strategy_;
  std::vector<NormSite> sites_;
  std::shared_ptr<Network> network_;
  std::string loaded_;  // what load_weights says; empty where nothing was loaded
};

}  // namespace bnlab
