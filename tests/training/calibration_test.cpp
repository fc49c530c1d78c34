#include "harness/training/calibration.hpp"

#include <gtest/gtest.h>

namespace bnlab {
namespace {

// Which samples one rank draws for calibration batches.
std::vector<Draw> draws_of(int ranks, int rank, uint64_t seed, int64_t index) {
  const Towers towers({2, 3, 1, 2}, ranks, rank);
  std::vector<Draw> seen;
  DrawnCalibration calibration(Sampler::iid(DrawnCalibration::sampler_seed(seed), 20, towers),
                               [&](const std::vector<Draw>& draws, int64_t i) {
                                 seen = draws;
                                 EXPECT_EQ(i, index);
                               });
  calibration.forward(index);
  return seen;
}

std::vector<int64_t> samples(const std::vector<Draw>& draws) {
  std::vector<int64_t> all;
  for (const Draw& draw : draws) {
    all.push_back(draw.sample);
  }
  return all;
}

TEST(Calibration, DependsOnSeedAndIndexAndNotOnThePlacement) {
  const auto whole = samples(draws_of(1, 0, 5, 3));
  std::vector<int64_t> parts = samples(draws_of(2, 0, 5, 3));
  const auto second = samples(draws_of(2, 1, 5, 3));
  parts.insert(parts.end(), second.begin(), second.end());
  EXPECT_EQ(whole.size(), 8u);
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(samples(draws_of(1, 0, 5, 3)), whole);
  EXPECT_NE(samples(draws_of(1, 0, 5, 4)), whole);
  EXPECT_NE(samples(draws_of(1, 0, 6, 3)), whole);
}

TEST(Calibration, DrawsApartFromTraining) {
  const Towers towers({2, 3, 1, 2}, 1, 0);
  const std::vector<Draw> training = Sampler::iid(5, 20, towers).batch(3);
  const std::vector<Draw> calibration = draws_of(1, 0, 5, 3);
  EXPECT_NE(samples(calibration), samples(training));
  for (const Draw& draw : calibration) {
    EXPECT_GT(draw.epoch,
              1'000'000'000'000);  // no training is that long, so no training batch is augmented alike
  }
}

}  // namespace
}  // namespace bnlab
