// How many seeds would decide: against tables of power, and what `plan` says of a matrix.
#include "harness/report/power.hpp"

#include <gtest/gtest.h>

#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

// Cohen 1988, table 2.4: a paired test of d = 0.8 at 5 % takes 15 pairs for 80 %, of d = 0.5 34, of d = 1 10.
TEST(Power, OfThePairedTestIsAsTabulated) {
  EXPECT_EQ(seeds_to_tell(0.8, 1, 0.05), 15);
  EXPECT_EQ(seeds_to_tell(-0.5, 1, 0.05), 34);
  EXPECT_EQ(seeds_to_tell(0.01, 0.01, 0.05), 10);
  EXPECT_EQ(seeds_to_tell(1e-6, 1, 0.05), std::nullopt);
  for (const double deviation : {1e-3, 1e-6, 1e-17})
    EXPECT_LE(seeds_to_tell(0.2, deviation, 0.05 / 200).value_or(99), 4) << deviation;
}

// Large n: sqrt(n) margin / deviation = z(0.95) + z(0.9) = 1.645 + 1.282, so n = 8.57 / margin^2.
TEST(Power, OfEqualityTendsToTheNormalOne) {
  EXPECT_NEAR(*seeds_to_show_equal(0.15, 0, 1, 0.05), 8.57 / (0.15 * 0.15), 3);
  EXPECT_EQ(seeds_to_show_equal(1e-4, 0, 1, 0.05), std::nullopt);
  // Off the middle one of the two tests decides: sqrt(n) (margin - mean) / deviation = z(0.95) + z(0.8).
  EXPECT_NEAR(*seeds_to_show_equal(0.2, -0.1, 1, 0.05), 2.486 * 2.486 / (0.1 * 0.1), 3);
  EXPECT_EQ(seeds_to_show_equal(0.2, 0.2, 1, 0.05), std::nullopt);
}

TEST(Power, OfSignFlipsIsAPowerOfTwo) {
  EXPECT_EQ(seeds_for_sign_flips(1), 6);  // 2^-5 = 0.031
  EXPECT_EQ(seeds_for_sign_flips(6), 8);
  EXPECT_EQ(seeds_for_sign_flips(10), 9);
}

TEST(SeedWarnings, SayWhatSoFewSeedsCannotShow) {
  const auto few = seed_warnings(synthetic_experiment(3), {});
  ASSERT_EQ(few.size(), 1u);
  EXPECT_EQ(
      few[0],
      "3 seeds can show a direction and give no verdict: that takes 6, and 6 for the sign-flip test over 1 "
      "comparison");
  Experiment two = synthetic_experiment(6);
  two.contrasts.push_back(two.contrasts[0]);
  two.contrasts[1].at = {{"towers", 2}};
  const auto flips = seed_warnings(two, {});
  ASSERT_EQ(flips.size(), 1u);
  EXPECT_EQ(flips[0], "with 6 seeds the t test decides alone: over 2 comparisons the sign-flip test takes 7");
  EXPECT_TRUE(seed_warnings(synthetic_experiment(6), {}).empty());
}

TEST(SeedWarnings, LeaveOutComparisonsThatWillNotBeJudged) {
  Experiment experiment = synthetic_experiment(6);
  experiment.contrasts.push_back(experiment.contrasts[0]);
  experiment.contrasts[1].metric = "images_per_s";
  std::vector<Record> emulated;
  for (const RunSpec& run : experiment.runs) emulated.push_back(synthetic_record(run, 0.5, 1));
  EXPECT_TRUE(seed_warnings(experiment, emulated).empty());  // two would take seven seeds
  EXPECT_EQ(seed_warnings(experiment, {}).size(), 1u);
}

TEST(SeedWarnings, TellFromFinishedPairsHowManySeedsAComparisonTakes) {
  Experiment experiment = synthetic_experiment(6);
  experiment.contrasts[0].equivalence_margin = 0.02;
  std::vector<Record> pilot;
  for (const RunSpec& run : experiment.runs) {
    if (run.seed > 2) continue;
    const bool sync = run.strategy.at("name") == "sync";
    pilot.push_back(synthetic_record(run, 0.5 + (sync ? 0.05 * static_cast<double>(run.seed) - 0.04 : 0), 1));
  }
  const auto warnings = seed_warnings(experiment, pilot);  // differences -0.04, 0.01, 0.06
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "sync - per_tower at 8x2, mean_iou saved: 3 pairs finished, difference 0.010, standard deviation "
            "0.050; 80 % power takes about " +
                std::to_string(*seeds_to_tell(0.01, 0.05, 0.05)) + " seeds, or about " +
                std::to_string(*seeds_to_show_equal(0.02, 0.01, 0.05, 0.05)) +
                " for equality within 0.02, the matrix has 6");
  experiment.contrasts[0].equivalence_margin = 0.01;
  EXPECT_EQ(seed_warnings(experiment, pilot)[0].find("for equality"), std::string::npos);
}

}  // namespace
}  // namespace bnlab
