#include "harness/training/optimizers/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace bnlab {
namespace {

LearningRate rate(Schedule schedule) {
  LearningRate rate;
  rate.lr = 0.5;
  rate.schedule = schedule;
  return rate;
}

TEST(LearningRate, PolyFallsPolynomiallyToItsFloor) {
  LearningRate poly = rate(Schedule::poly);
  poly.power = 2;
  EXPECT_DOUBLE_EQ(poly.at(0, 10), 0.5);
  EXPECT_DOUBLE_EQ(poly.at(5, 10), 0.5 * 0.25);  // (1 - 1/2)^2
  poly.lr_floor = 0.1;
  EXPECT_DOUBLE_EQ(poly.at(0, 10), 0.5);
  EXPECT_DOUBLE_EQ(poly.at(5, 10), 0.1 + 0.4 * 0.25);
  EXPECT_DOUBLE_EQ(poly.at(10, 10), 0.1);
}

TEST(LearningRate, CosineFallsAlongHalfAWaveToItsFloor) {
  LearningRate cosine = rate(Schedule::cosine);
  EXPECT_DOUBLE_EQ(cosine.at(0, 12), 0.5);
  EXPECT_DOUBLE_EQ(cosine.at(4, 12), 0.5 * 0.75);  // cos(pi/3) = 1/2
  EXPECT_DOUBLE_EQ(cosine.at(6, 12), 0.25);
  cosine.lr_floor = 0.1;
  EXPECT_DOUBLE_EQ(cosine.at(4, 12), 0.1 + 0.4 * 0.75);
}

TEST(LearningRate, StepFallsAtEachMilestone) {
  LearningRate step = rate(Schedule::step);
  step.milestones = {0.5, 0.7};  // 0.7 * 10 is a little less than 7, or a little more
  step.gamma = 0.1;
  for (int64_t k = 0; k < 10; ++k) EXPECT_DOUBLE_EQ(step.at(k, 10), k < 5 ? 0.5 : k < 7 ? 0.05 : 0.005) << k;
  step.milestones = {1. / 3};
  EXPECT_DOUBLE_EQ(step.at(29'999'999, 90'000'000), 0.5);
  EXPECT_DOUBLE_EQ(step.at(30'000'000, 90'000'000), 0.05);
}

TEST(LearningRate, ConstantStays) {
  EXPECT_DOUBLE_EQ(rate(Schedule::constant).at(9, 10), 0.5);
}

TEST(LearningRate, WarmUpMultipliesEverySchedule) {
  for (const Schedule schedule : {Schedule::poly, Schedule::constant, Schedule::step, Schedule::cosine}) {
    LearningRate plain = rate(schedule);
    if (schedule == Schedule::step)
      plain.milestones = {0.1};
    else if (schedule != Schedule::constant)
      plain.lr_floor = 0.1;
    LearningRate warmed = plain;
    warmed.warmup_steps = 4;
    for (const int64_t k : {0, 1, 2, 3, 4, 9}) {
      EXPECT_DOUBLE_EQ(warmed.at(k, 10), plain.at(k, 10) * (k < 4 ? static_cast<double>(k + 1) / 4 : 1))
          << name_of(schedule) << " at step " << k;
    }
  }
}

std::vector<std::string> mistakes(const LearningRate& rate) {
  Problems problems;
  rate.check(problems);
  std::vector<std::string> texts;
  for (const auto& [key, message] : problems.found()) texts.push_back(key + ": " + message);
  return texts;
}

TEST(LearningRate, RefusesKeysThatItsScheduleDoesNotUse) {
  using Texts = std::vector<std::string>;
  LearningRate step = rate(Schedule::step);
  EXPECT_EQ(mistakes(step), Texts{"milestones: expected at least one where the schedule is step, got none"});
  step.milestones = {0.5, 0.5};
  EXPECT_EQ(mistakes(step), Texts{"milestones: expected each above the one before it, got [0.5,0.5]"});
  step.milestones = {0.5, 0.75};
  EXPECT_EQ(mistakes(step), Texts{});
  step.lr_floor = 0.1;
  EXPECT_EQ(mistakes(step), Texts{"lr_floor: expected 0 where the schedule is step, got 0.1"});
  step.lr_floor = 0;
  step.power = 2;
  EXPECT_EQ(mistakes(step), Texts{"power: expected none where the schedule is step, got 2.0"});
  LearningRate poly = rate(Schedule::poly);
  EXPECT_EQ(mistakes(poly), Texts{});
  poly.gamma = 0.5;
  EXPECT_EQ(mistakes(poly), Texts{"gamma: expected none where the schedule is poly, got 0.5"});
  poly.gamma = 0.1;
  poly.milestones = {0.5};
  poly.lr_floor = 0.75;
  EXPECT_EQ(mistakes(poly), (Texts{"lr_floor: expected at most lr, got 0.75",
                                   "milestones: expected none where the schedule is poly, got [0.5]"}));
}

}  // namespace
}  // namespace bnlab
