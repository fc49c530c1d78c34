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

DrawnCalibration::DrawnCalibration(Sampler sampler, Forward forward)
    : sampler_(std::move(sampler)), forward_(std::move(forward)) {}

void DrawnCalibration::forward(int64_t index) {
  std::vector<Draw> draws = sampler_.batch(index);
  for (Draw& draw : draws) {
    draw.epoch += kFirstEpoch;
  }
  forward_(draws, index);
}

}  // namespace bnlab
