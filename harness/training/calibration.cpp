#include "harness/training/calibration.hpp"

#include <utility>

#include "harness/random.hpp"

namespace bnlab {
namespace {

// Augmentation draws from (seed, epoch, sample): calibration lies beyond every epoch of training.
constexpr int64_t kFirstEpoch = int64_t{1} << 40;

}  // namespace

uint64_t DrawnCalibration::sampler_seed(uint64_t seed) {
  return Stream(seed, "calibration").bits();
}

DrawnCalibration::DrawnCalibration(Sampler sampler, MakeBatch make_batch)
    : sampler_(std::move(sampler)), make_batch_(std::move(make_batch)) {}

Batch DrawnCalibration::batch(int64_t index) {
  std::vector<Draw> draws = sampler_.batch(index);
  for (Draw& draw : draws) {
    draw.epoch += kFirstEpoch;
  }
  return make_batch_(draws, index);
}

}  // namespace bnlab
