// Training batches apart from training: the sampler's own cut of the training set into towers and shards, but
// in an order drawn from (seed, "calibration"), with augmentation that no training step draws.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "harness/running_statistics.hpp"
#include "harness/tasks/sampler.hpp"

namespace bnlab {

class DrawnCalibration : public Calibration {
 public:
  // The seed of the sampler that calibration batches are drawn by.
  static uint64_t sampler_seed(uint64_t seed);

  // `forward`: from draws to a forward pass over the batch with an index.
  using Forward = std::function<void(const std::vector<Draw>& draws, int64_t index)>;
  DrawnCalibration(Sampler sampler, Forward forward);

  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }
  void forward(int64_t index) override;

 private:
  Sampler sampler_;
  Forward forward_;
};

}  // namespace bnlab
