// A strategy's layer on a rank of a real world, for what a LayerCase cannot ask: the ledgers of all ranks,
// loading a checkpoint, calibration batches. Ranks are threads of this process that meet over loopback.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "harness/communicator/world.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

// The step's rows on this rank.
Batch batch_of(const LayerStep& step, const World& world);

class OneSite {
 public:
  // Parameters and running statistics are the case's.
  OneSite(const LayerCase& layer_case, World& world, bool fresh_weights = true);
  ~OneSite();

  // Forward, and backward where the step has gradients and autograd is on; this rank's rows.
  at::Tensor apply(const LayerStep& step);
  // The saved pair put where evaluation reads it; `calibration`: the batches that strategy precise has.
  void show_saved(const std::vector<LayerStep>& calibration);
  // Parameters and buffers as a weights file holds them.
  void load(const OneSite& other);
  std::vector<at::Tensor> state() const;  // parameters, then buffers
  std::set<std::string> buffer_names() const;

  Strategy& strategy() { return *strategy_; }

 private:
  class SiteNetwork;
  class GivenBatches;
  void start_from_buffers();

  World& world_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<SiteNetwork> network_;
  int64_t training_steps_ = 0;
};

}  // namespace bnlab
