// Training batches apart from training: the sampler's own cut of the training set into towers and shards, but
// in an order drawn from (seed, "calibration"), with augmentation that no training step draws.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "harness/strategy.hpp"
#include "harness/tasks/sampler.hpp"

namespace bnlab {

class DrawnCalibration : public Calibration {
 public:
  // The seed of the sampler that calibration batches are drawn by.
  static uint64_t sampler_seed(uint64_t seed);

  // `make_batch`: from draws to the batch with an index.
  using MakeBatch = std::function<Batch(const std::vector<Draw>& draws, int64_t index)>;
  DrawnCalibration(Sampler sampler, MakeBatch make_batch);

  int64_t available() const override { return std::numeric_limits<int64_t>::max(); }
  Batch batch(int64_t index) override;

 private:
  Sampler sampler_;
  MakeBatch make_batch_;
};

}  // namespace bnlab
