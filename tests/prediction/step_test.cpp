// The step of a strategy, put together from a rank's own work and exchanges, by hand.
#include "harness/prediction/step.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/prediction/validation.hpp"

namespace bnlab::step_test {
namespace {

// Every exchange takes 1 ms, whatever it is, and a MiB 10 ms more.
class Even : public Fabric {
 public:
  std::string name() const override { return "even"; }
  Estimate seconds(const std::string&, const std::string&, double bytes, int) const override {
    const double time = 1e-3 + bytes / (1 << 20) * 10e-3;
    return {time / 2, time, time * 2};
  }
};

StepProfile profile_of(std::vector<StepProfile::Exchange> exchanges) {
  StepProfile profile;
  profile.own = {0.09, 0.1, 0.11};
  profile.backward = 0.06;
  profile.exchanges = std::move(exchanges);
  return profile;
}

TEST(PredictStep, AddsEveryExchangeOfStatistics) {
  const StepProfile profile = profile_of({{"all_gather", "statistics", 0, 20}});
  const StepPrediction prediction = predict_step(profile, Even(), 2, {});
  EXPECT_NEAR(prediction.statistics.mid, 20e-3, 1e-12);
  EXPECT_NEAR(prediction.statistics.low, 10e-3, 1e-12);
  EXPECT_NEAR(prediction.step().mid, 0.12, 1e-12);
}

TEST(PredictStep, HidesGradientsBehindBackwardButForTheLastBucket) {
  const double mib = 1 << 20;
  const StepProfile small = profile_of({{"all_reduce", "gradients", 3 * mib, 1}});
  EXPECT_NEAR(predict_step(small, Even(), 2, {}).gradients.mid, 21e-3, 1e-9) << "the second bucket of two";
  EXPECT_NEAR(predict_step(small, Even(), 2, {.overlaps_gradients = false}).gradients.mid, 31e-3, 1e-9);
  EXPECT_NEAR(predict_step(small, Even(), 2, {.spare_cores = false}).gradients.mid, 32e-3, 1e-9)
      << "nothing goes on beside backward where it takes all cores";
  const StepProfile large = profile_of({{"all_reduce", "gradients", 10 * mib, 1}});
  EXPECT_NEAR(predict_step(large, Even(), 2, {}).gradients.mid, 91e-3, 1e-9);
}

TEST(PredictStep, WaitsForTheSlowestRankAtEveryExchange) {
  StepProfile profile = profile_of({{"all_reduce", "statistics", 0, 16}});
  profile.deviation = 1e-3;
  const StepPrediction prediction = predict_step(profile, Even(), 8, {});
  EXPECT_NEAR(prediction.stragglers.mid, 1e-3 * expected_largest(8), 1e-9) << "slow for the whole step";
  EXPECT_NEAR(prediction.stragglers.high, 4 * 1e-3 * expected_largest(8), 1e-9) << "slow in a part alone";
  EXPECT_EQ(prediction.stragglers.low, 0);
  const StepPrediction given = predict_step(profile, Even(), 8, {.exchange_deviation = 2e-6});
  EXPECT_NEAR(given.stragglers.high, 16 * 2e-6 * expected_largest(8), 1e-12);
}

TEST(PredictStep, OfOneRankIsItsOwnWork) {
  const StepProfile profile = profile_of({{"all_reduce", "statistics", 0, 16}});
  EXPECT_EQ(predict_step(profile, Even(), 1, {}).step().mid, 0.1);
}

TEST(StepByPeaks, IsTheFloorOfProductsAndOfAllThatIsMoved) {
  StepProfile profile;
  profile.flops = 4e12;
  profile.matrix_bytes = 1e9;
  profile.other_bytes = 3e9;
  EXPECT_NEAR(step_by_peaks(profile, 1e12, 1e9).low, 4 + 3, 1e-9);
  EXPECT_NEAR(step_by_peaks(profile, 1e15, 1e9).low, 1 + 3, 1e-9) << "products that wait for memory";
  EXPECT_GT(step_by_peaks(profile, 1e12, 1e9).mid, 7);
  EXPECT_NEAR(step_by_peaks(profile, 1e12, 1e9).high, 14, 1e-9);
}

// The exact values of two and three are 1/sqrt(pi) and 3/(2 sqrt(pi)).
TEST(ExpectedLargest, IsThatOfNormalNumbers) {
  EXPECT_NEAR(expected_largest(2), 1 / std::sqrt(M_PI), 0.03);
  EXPECT_NEAR(expected_largest(3), 1.5 / std::sqrt(M_PI), 0.03);
  EXPECT_NEAR(expected_largest(8), 1.4236, 0.02);
  EXPECT_NEAR(expected_largest(1000), 3.2414, 0.03);
  EXPECT_EQ(expected_largest(1), 0);
}

TEST(ReadProfile, TakesWhatOwnStepSays) {
  const Json step = {
      {"run", "a"},
      {"strategy", "b"},
      {"model", "c"},
      {"exchange", "sockets"},
      {"ranks", 2},
      {"images_per_rank", 4},
      {"own_s", {{"p10", 1.0}, {"mean", 2.0}, {"p90", 3.0}}},
      {"parts_s", {{"backward", 0.5}}},
      {"peak_memory_bytes", 7},
      {"exchanges", {{{"op", "gather"}, {"purpose", "statistics"}, {"bytes", 8}, {"count", 2.0}}}}};
  const StepProfile profile = read_profile(step);
  EXPECT_EQ(profile.own.mid, 2);
  EXPECT_NEAR(profile.deviation, 2 / 2.563, 1e-12);
  EXPECT_EQ(profile.backward, 0.5);
  EXPECT_TRUE(profile.exchanges_statistics());
  Json apart = step;
  apart["apart_s"] = {{"mean", 0.25}};
  EXPECT_NEAR(read_profile(apart).deviation, 0.25 / expected_largest(2), 1e-12)
      << "ranks that are slow at the same time wait for nobody";
  EXPECT_EQ(read_profile({{"run", "a"},
                          {"strategy", "b"},
                          {"model", "c"},
                          {"ranks", 2},
                          {"images_per_rank", 1},
                          {"refused", "why"}})
                .refused,
            "why");
}

TEST(Quality, CountsWhatLiesInside) {
  const std::vector<CheckedPrediction> checked{
      {"a", "", {1, 2, 3}, 2.5}, {"b", "", {1, 2, 3}, 4}, {"c", "", {1, 2, 3}, 1}};
  const Quality quality = quality_of(checked);
  EXPECT_EQ(quality.in_interval, 2U);
  EXPECT_NEAR(quality.median_error, 0.5, 1e-12);
  EXPECT_NEAR(quality.worst_error, 1, 1e-12);
  EXPECT_NEAR(quality.median_factor, 2, 1e-12);
}

TEST(Quality, OfThePublishedClustersIsThatOfThePage) {
  const Quality without = quality_of(clusters_without_a_probe());
  EXPECT_GE(static_cast<double>(without.in_interval), 0.9 * static_cast<double>(without.count));
  const Quality two_sizes = quality_of(clusters_by_two_sizes());
  EXPECT_LE(two_sizes.median_factor, 1.4);
  EXPECT_GE(static_cast<double>(two_sizes.in_interval), 0.9 * static_cast<double>(two_sizes.count));
}

}  // namespace
}  // namespace bnlab::step_test
