// Runs that stop_early ends: at which step, for which reason, what they leave, and that nothing but the
// training losses of the windows decides.
#include "harness/training/endings/early_stop.hpp"

#include <fstream>

#include "harness/store/run_folder.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

// 12 steps whose rate is too small to learn anything.
Json idle(const Json& rule, const Json& more = Json::object()) {
  Json keys = {{"steps", 12}, {"optimizer", {{"name", "sgd"}, {"lr", 1e-9}}}, {"stop_early", rule}};
  keys.update(more);
  return keys;
}

const Json kAtChance = {{"every", 2}, {"chance_after", 5}, {"chance_above", 0.5}};

int64_t last_step_of(const TrainedRun& run) {
  std::ifstream log(run.folder / kMetricsFile);
  int64_t step = 0;
  for (std::string line; std::getline(log, line);)
    step = std::max(step, Json::parse(line).value("step", int64_t{0}));
  return step;
}

TEST(EarlyStop, EndsARunAtChanceAfterTheFirstWindowThatMayAndEvaluatesItThere) {
  TrainingRuns runs;
  const TrainedRun run = runs.run(TrainingRuns::spec(idle(kAtChance)), 1);
  const Json& stopped = run.result.at("stopped_early");
  EXPECT_EQ(stopped.at("step"), 6);  // windows end at 2, 4, 6: the first from step 5 on
  EXPECT_EQ(stopped.at("reason"), "at chance");
  EXPECT_NEAR(stopped.at("first_loss"), (run.losses[0] + run.losses[1]) / 2, 1e-12);
  EXPECT_NEAR(stopped.at("loss"), (run.losses[4] + run.losses[5]) / 2, 1e-12);
  EXPECT_EQ(run.result.at("steps"), 6);
  EXPECT_EQ(last_step_of(run), 6);
  EXPECT_EQ(run.result.at("history").back().at("step"), 6);
  EXPECT_TRUE(run.result.at("final").at("saved").at("mean_iou").is_number());
  ASSERT_EQ(run.notes.size(), 1u);
  EXPECT_TRUE(run.notes[0].starts_with("stopped early after 6 of 12 steps, at chance: ")) << run.notes[0];
}

TEST(EarlyStop, EndsNoRunAtItsLastStep) {
  TrainingRuns runs;
  const TrainedRun run = runs.run(TrainingRuns::spec(idle(kAtChance, {{"steps", 6}})), 1);
  EXPECT_FALSE(run.result.contains("stopped_early")) << run.result.at("stopped_early");
  EXPECT_TRUE(run.notes.empty());
}

TEST(EarlyStop, EndsARunWhoseLossHasRisen) {
  TrainingRuns runs;
  const TrainedRun run =
      runs.run(TrainingRuns::spec({{"steps", 12},
                                   {"optimizer", {{"name", "sgd"}, {"lr", 10}, {"schedule", "constant"}}},
                                   {"stop_early", {{"every", 1}, {"diverging_above", 1.2}}}}),
               1);
  const Json& stopped = run.result.at("stopped_early");
  EXPECT_EQ(stopped.at("reason"), "diverging");
  const auto step = stopped.at("step").get<size_t>();
  ASSERT_EQ(run.losses.size(), step);
  for (size_t i = 1; i + 1 < step; ++i) EXPECT_LE(run.losses[i], 1.2 * run.losses[0]);
  EXPECT_GT(run.losses.back(), 1.2 * run.losses[0]);
}

TEST(EarlyStop, LeavesARunThatLearnsAsItIs) {
  TrainingRuns runs;
  const TrainedRun plain = runs.run(TrainingRuns::spec({{"steps", 9}}), 2);
  const TrainedRun watched =
      runs.run(TrainingRuns::spec(
                   {{"steps", 9}, {"stop_early", {{"every", 2}, {"chance_after", 4}, {"chance_above", 1}}}}),
               2);
  EXPECT_FALSE(watched.result.contains("stopped_early"));
  EXPECT_TRUE(watched.notes.empty());
  EXPECT_EQ(plain.result.at("final"), watched.result.at("final"));
  expect_equal(plain.tensors, watched.tensors);
}

TEST(EarlyStop, IsTheSameOnAnyPlacementAndHoweverOftenTheRunReports) {
  TrainingRuns runs;
  const TrainedRun one = runs.run(TrainingRuns::spec(idle(kAtChance)), 1);
  for (const int ranks : {2, 4}) {
    const TrainedRun several = runs.run(TrainingRuns::spec(idle(kAtChance)), ranks);
    EXPECT_EQ(several.result.at("stopped_early").at("step"), 6) << ranks;
    EXPECT_EQ(several.result.at("final"), one.result.at("final")) << ranks;
  }
  const TrainedRun silent = runs.run(TrainingRuns::spec(idle(kAtChance, {{"log_every", 100}})), 1);
  EXPECT_EQ(silent.result.at("stopped_early"), one.result.at("stopped_early"));
  expect_equal(silent.tensors, one.tensors);
  EXPECT_EQ(silent.losses.size(), 1u);  // it is reported where it stops
}

TEST(EarlyStop, StopsWhereTheRanksHaveAveragedTheirWeights) {
  TrainingRuns runs;
  const TrainedRun run = runs.run(TrainingRuns::spec(idle(kAtChance, {{"average_weights_every", 2}})), 4);
  EXPECT_EQ(run.result.at("stopped_early").at("step"), 6);
}

TEST(EarlyStop, LeavesALossThatIsNotFiniteToDiverge) {
  TrainingRuns runs;
  const Json keys = {{"steps", 12},
                     {"log_every", 5},
                     {"optimizer", {{"name", "sgd"}, {"lr", 1e300}, {"schedule", "constant"}}},
                     {"stop_early", kAtChance}};
  for (const RankReport& report : runs.reports(TrainingRuns::spec(keys), 2, runs.new_folder())) {
    EXPECT_EQ(report.status, Status::diverged);
    if (!report.result.is_null()) EXPECT_FALSE(report.result.contains("stopped_early"));
  }
}

}  // namespace
}  // namespace bnlab
