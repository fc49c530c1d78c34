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

// These steps' inputs as calibration batches.
class GivenBatches : public Calibration {
 public:
  GivenBatches(std::vector<LayerStep> steps, const World& world) : steps_(std::move(steps)), world_(world) {}
  int64_t available() const override { return static_cast<int64_t>(steps_.size()); }
  Batch batch(int64_t index) override;

 private:
  std::vector<LayerStep> steps_;
  const World& world_;
};

class OneSite {
 public:
  // Parameters and running statistics are the case's.
  OneSite(const LayerCase& layer_case, World& world, bool fresh_weights = true);
  ~OneSite();

  // Forward, and backward where the step has gradients and autograd is on; this rank's rows.
  at::Tensor apply(const LayerStep& step);
  // The saved pair put where evaluation reads it; `calibration` as Strategy::before_eval takes it.
  void before_eval(Calibration& calibration);
  // Parameters and buffers as a weights file holds them.
  void load(const OneSite& other);
  std::vector<at::Tensor> state() const;  // parameters, then buffers
  std::set<std::string> buffer_names() const;

  Strategy& strategy() { return *strategy_; }

 private:
  class SiteNetwork;
  World& world_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<SiteNetwork> network_;
  int64_t training_steps_ = 0;
};

}  // namespace bnlab
