// Moving-average batch normalisation at one site (Yan et al. 2020): what a tower is normalised by, forward
// and backward, are means over its last steps, so that a small batch meets the statistics of a large one and
// nothing is exchanged. kernels/moving_average.hpp has the formulas. The running statistics remember the
// second moments that normalised, in the place of a variance, with the mean 0.
#pragma once

#include <memory>
#include <vector>

#include "harness/network.hpp"
#include "harness/strategy.hpp"
#include "strategies/engine/bn_statistics.hpp"
#include "strategies/kernels/moving_average.hpp"

namespace bnlab {

// The windows of a site, made with its first training step, when the towers of the rank are known.
class MovingState {
 public:
  // towers: of this rank; 0: not known yet.
  MovingState(int64_t towers, int64_t window, int64_t channels, const at::TensorOptions& statistics);

  kernels::MovingWindows& of_towers(int64_t towers, at::Device device);
  void reset() { windows_ = {}; }
  void scale_products(double factor) {
    if (windows_.products.defined()) windows_.products.mul_(factor);
  }
  void describe(State& state, const std::string& path);

 private:
  int64_t towers_, window_, channels_;
  at::TensorOptions statistics_;
  kernels::MovingWindows windows_;
};

// Running statistics and windows of all sites.
class MovingStatistics : public BnStatistics {
 public:
  explicit MovingStatistics(Communicator& communicator)
      : BnStatistics(communicator), ranks_(communicator.size()) {}

  void add(std::shared_ptr<SiteStatistics> site, std::shared_ptr<MovingState> state);
  void init_from_buffers(int64_t steps) override;
  void describe(State& state) override;

 private:
  int64_t ranks_;
  std::vector<std::shared_ptr<MovingState>> states_;
};

class MovingNorm : public Layer {
 public:
  MovingNorm(const NormSite& site, std::shared_ptr<const Rules> rules, const kernels::MovingOptions& options,
             int64_t window, const Strategy::Context& context);
  at::Tensor forward(at::Tensor x, at::Tensor residual, const Pass& pass) override;

  const std::shared_ptr<SiteStatistics>& statistics() const { return statistics_; }
  const std::shared_ptr<MovingState>& state() const { return state_; }

 private:
  NormSite site_;
  std::shared_ptr<const Rules> rules_;
  kernels::MovingOptions options_;
  at::Tensor weight_, bias_;  // [C], undefined without affine
  std::shared_ptr<SiteStatistics> statistics_;
  std::shared_ptr<MovingState> state_;
};

}  // namespace bnlab
