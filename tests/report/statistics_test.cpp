// Expected values are closed forms of Student's t with one and two degrees of freedom:
//   1: P(T <= t) = 1/2 + atan(t)/pi                2: P(T <= t) = 1/2 + t / (2 sqrt(2 + t^2))
#include "harness/report/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace bnlab {
namespace {

constexpr double kTight = 1e-10;

TEST(Statistics, MeanSpreadAndMedian) {
  EXPECT_DOUBLE_EQ(mean({1, 2, 6}), 3);
  EXPECT_DOUBLE_EQ(sample_standard_deviation({1, 2, 6}), std::sqrt(7.0));  // (4 + 1 + 9) / 2
  EXPECT_TRUE(std::isnan(mean({})));
  EXPECT_TRUE(std::isnan(sample_standard_deviation({1})));
}

TEST(TInterval, MatchesTheClosedFormForThreeValues) {
  // Quantile of 2 degrees of freedom: (2p - 1) / sqrt(2 p (1 - p)), p = 0.975: 4.3027. Error: 1 / sqrt(3).
  const double quantile = 0.95 / std::sqrt(2 * 0.975 * 0.025);
  const Interval interval = t_interval({1, 2, 3});
  EXPECT_EQ(interval.n, 3u);
  EXPECT_NEAR(interval.mean, 2, kTight);
  EXPECT_NEAR(interval.half_width, quantile / std::sqrt(3.0), kTight);
  EXPECT_TRUE(std::isnan(t_interval({1}).half_width));
}

TEST(TTest, MatchesTheClosedForms) {
  EXPECT_NEAR(t_test_p({1, 2, 3}), 1 - std::sqrt(12.0 / 14.0), kTight);              // t = sqrt(12)
  EXPECT_NEAR(t_test_p({1, 3}), 1 - 2 / std::numbers::pi * std::atan(2.0), kTight);  // t = 2
  EXPECT_NEAR(t_test_p({-1, -3}), t_test_p({1, 3}), kTight);
}

TEST(TTest, KnowsDifferencesWithoutSpread) {
  EXPECT_EQ(t_test_p({0, 0, 0}), 1);
  EXPECT_EQ(t_test_p({2, 2, 2}), 0);
  EXPECT_EQ(t_test_p({2}), 1);
}

TEST(SignFlip, CountsPatternsThatReachTheSum) {
  EXPECT_DOUBLE_EQ(*sign_flip_p({1, 2, 3}), 2.0 / 8);   // only +++ and --- reach 6
  EXPECT_DOUBLE_EQ(*sign_flip_p({3, 1, -1}), 6.0 / 8);  // |3 + a + b|: 5, 3, 3, 1; 3 of 4 reach 3
  EXPECT_DOUBLE_EQ(*sign_flip_p({1, 2, -3}), 1);        // the sum is 0: all reach it
  EXPECT_DOUBLE_EQ(*sign_flip_p({0.1, 0.2, 0.3}), 2.0 / 8);
}

TEST(SignFlip, CannotGoBelowTwoToTheOneMinusN) {
  EXPECT_DOUBLE_EQ(*sign_flip_p(std::vector<double>(5, 1.0)), 0.0625);
  EXPECT_DOUBLE_EQ(*sign_flip_p(std::vector<double>(6, 1.0)), 0.03125);
  EXPECT_DOUBLE_EQ(*sign_flip_p(std::vector<double>(20, 1.0)), std::pow(2.0, -19));
  EXPECT_EQ(sign_flip_p(std::vector<double>(21, 1.0)), std::nullopt);
}

TEST(Holm, MultipliesStepDownAndStaysMonotone) {
  // Sorted: 0.005 x 4, 0.01 x 3, 0.03 x 2, then 0.04 x 1 = 0.04, raised to the 0.06 before it.
  const std::vector<double> adjusted = holm({0.01, 0.04, 0.03, 0.005});
  const std::vector<double> expected = {0.03, 0.06, 0.06, 0.02};
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(adjusted[i], expected[i], kTight) << i;
  EXPECT_EQ(holm({0.7, 0.8}), (std::vector<double>{1, 1}));
}

TEST(Equivalence, MatchesTheClosedFormForTwoValues) {
  // Mean 0, error 1, one degree of freedom: p = P(T <= -margin).
  EXPECT_NEAR(equivalence_p({-1, 1}, 1), 0.25, kTight);
  EXPECT_NEAR(equivalence_p({-1, 1}, std::sqrt(3.0)), 1.0 / 6, kTight);
  // Mean 2: the upper side decides, P(T <= 2 - 3).
  EXPECT_NEAR(equivalence_p({1, 3}, 3), 0.25, kTight);
  EXPECT_NEAR(equivalence_p({-1, -3}, 3), 0.25, kTight);
}

const std::vector<double> kClose = {0.001, -0.001, 0.0005, -0.0004, 0.0002, -0.0003};
const std::vector<double> kFar = {0.1, 0.11, 0.09, 0.1, 0.1, 0.12};

TEST(Verdict, NeedsAMarginToSayEqual) {
  EXPECT_EQ(verdict(kClose, t_test_p(kClose), std::nullopt), Verdict::undecided);
  EXPECT_EQ(verdict(kClose, t_test_p(kClose), equivalence_p(kClose, 0.01)), Verdict::equal);
  EXPECT_EQ(verdict(kFar, t_test_p(kFar), std::nullopt), Verdict::better);
  EXPECT_EQ(verdict({-0.1, -0.11, -0.09, -0.1, -0.1, -0.12}, 0.001, 0.9), Verdict::worse);
  EXPECT_EQ(verdict(kFar, 0.2, equivalence_p(kFar, 0.01)),
            Verdict::undecided);  // not significant after adjustment, not within the margin
  EXPECT_EQ(verdict(kFar, t_test_p(kFar), equivalence_p(kFar, 0.5)), Verdict::equal);
}

TEST(Verdict, OfFewerThanSixSeedsIsADirectionAtMost) {
  const std::vector<double> five(kFar.begin(), kFar.begin() + 5), close(kClose.begin(), kClose.begin() + 5);
  EXPECT_EQ(verdict(five, t_test_p(five), std::nullopt), Verdict::direction_above);
  EXPECT_EQ(verdict({-0.1, -0.11, -0.09}, 0.001, std::nullopt), Verdict::direction_below);
  EXPECT_EQ(verdict(five, 0.2, std::nullopt), Verdict::undecided);
  EXPECT_EQ(verdict(close, t_test_p(close), 0.001), Verdict::undecided);  // not "equal" either
  EXPECT_EQ(verdict({}, 1, 0.01), Verdict::undecided);
  EXPECT_STREQ(name(Verdict::direction_above), "direction: above");
}

}  // namespace
}  // namespace bnlab
