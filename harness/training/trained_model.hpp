// What a run trains and evaluates: its model under its strategy, with the weights that its spec starts from.
#pragma once

#include <string>
#include <vector>

#include "harness/built_network.hpp"
#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/state.hpp"
#include "harness/training/data.hpp"

namespace bnlab {

class TrainedModel {
 public:
  // Builds the network, loads the weights that the spec starts from, and takes over rank 0's. Called by every
  // rank. Throws Error where the model, the strategy or the weights refuse.
  TrainedModel(const RunSpec& spec, const Data& data, World& world);

  // The outputs for this rank's samples after `step` training steps, computed in the precision of the run.
  Outputs forward(const Batch& batch, int64_t step, Mode mode);

  bool repeats(int64_t step) const;  // bnlab::repeats
  // Whether the optimizer may change this parameter at this step.
  bool trainable(const std::string& parameter, int64_t step) const;

  // Parameters, buffers, and what the strategy remembers beside them.
  void describe(State& state);

  Network& network() const { return built_.network(); }
  RunningStatistics* statistics() const { return built_.statistics(); }  // may be null
  std::vector<std::string> notes() const;  // on the strategy and the weights that were loaded
  const std::vector<NormSite>& sites() const { return built_.sites(); }

 private:
  Precision precision_;
  Recompute recompute_;
  uint64_t seed_;
  at::Device device_;
  int64_t steps_;
  BuiltNetwork built_;
  std::string loaded_;  // what load_weights says; empty where nothing was loaded
};

}  // namespace bnlab
