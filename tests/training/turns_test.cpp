#include "harness/training/timing/turns.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "harness/experiment/timing.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

Round round_of(std::vector<double> step_s, double others = 0) {
  return {std::move(step_s), others, 0};
}

TEST(Turns, ARatioIsThatToTheMeanOfBothCopiesAndItsErrorThatOfTheRounds) {
  // The run takes twice the copies' time in one round and four times in the other.
  const std::vector<Round> rounds{round_of({2, 1, 1}), round_of({8, 1, 4})};
  const LogRatio ratio = log_ratio(rounds, 0), same = log_ratio(rounds, 1);
  EXPECT_NEAR(ratio.mean, -(std::log(2) + std::log(4)) / 2, 1e-12);
  // The two values lie log(2)/2 from their mean: a standard deviation of log(2)/sqrt(2), over sqrt(2) rounds.
  EXPECT_NEAR(ratio.standard_error, std::log(2) / 2, 1e-12);
  EXPECT_NEAR(same.mean, std::log(4) / 2, 1e-12) << "the first copy is the faster one";
}

TEST(Turns, DisturbedRoundsCountOnlyWhereTooFewOthersAreLeft) {
  std::vector<Round> rounds(kFewestRounds, round_of({1, 1, 1}));
  rounds.push_back(round_of({9, 1, 1}, 2 * kMostTaken));
  EXPECT_EQ(rounds_that_count(rounds).size(), kFewestRounds);
  rounds.front().steal = 2 * kMostTaken;
  EXPECT_EQ(rounds_that_count(rounds).size(), kFewestRounds + 1);
}

Json timing(const std::string& against) {
  return {{"against", {{"strategy", against}}},
          {"seconds", 0.01},
          {"steps", 12},
          {"turn_s", 0.002},
          {"error", 10},
          {"limit_s", 0.5}};
}

TEST(Turns, ATimedRunLeavesWhatItLeavesWithoutAndItsRecordHasTheTimes) {
  TrainingRuns runs;
  for (const std::string strategy : {"sync", "shuffle"}) {
    SCOPED_TRACE(strategy);
    const TrainedRun plain = runs.run(TrainingRuns::spec({{"strategy", strategy}}), 2);
    TrainedRun timed =
        runs.run(TrainingRuns::spec({{"strategy", strategy}, {"timing", timing("per_tower")}}), 2);
    expect_equal(timed.tensors, plain.tensors);
    EXPECT_EQ(timed.losses, plain.losses);
    for (const char* key : {"final", "train_loss", "communication", "sites", "epochs", "images"})
      EXPECT_EQ(timed.result.at(key), plain.result.at(key)) << key;
    const Json& times = timed.result.at("timing");
    EXPECT_GE(times.at("rounds").get<size_t>(), kFewestRounds);
    EXPECT_GE(times.at("steps").get<int>(), 6);
    for (const Json& steps :
         {times.at("step_ms"), times.at("against_step_ms").at(0), times.at("against_step_ms").at(1)}) {
      ASSERT_EQ(steps.size(), times.at("rounds"));
      EXPECT_GT(steps.at(0), 0);
    }
    // The ratio is that of the times of the rounds.
    double sum = 0;
    for (size_t round = 0; round < times.at("step_ms").size(); ++round) {
      sum += (std::log(times.at("against_step_ms").at(0).at(round).get<double>()) +
              std::log(times.at("against_step_ms").at(1).at(round).get<double>())) /
                 2 -
             std::log(times.at("step_ms").at(round).get<double>());
    }
    EXPECT_NEAR(times.at("log_images_per_s"), sum / times.at("rounds").get<double>(), 1e-9);
    EXPECT_EQ(timed.result.at("throughput").at("steps_measured"), times.at("steps"));
  }
}

TEST(Turns, RunsOfOneWorldHaveTheirTurnsBesideEachOther) {
  TrainingRuns runs;
  Json together = timing("per_tower");
  together["with"] = {{{"strategy", "shuffle"}}, {{"batch_per_tower", 4}}};
  const RunSpec spec = TrainingRuns::spec({{"strategy", "sync"}, {"timing", together}});
  const TrainedRun timed = runs.run(spec, 2);
  expect_equal(timed.tensors, runs.run(TrainingRuns::spec({{"strategy", "sync"}}), 2).tensors);
  const Json& times = timed.result.at("timing");
  const std::vector<RunSpec> others = timed_with(spec);
  ASSERT_EQ(times.at("with").size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    const Json& other = times.at("with").at(i);
    EXPECT_EQ(other.at("run_id"), others[i].id);
    EXPECT_EQ(other.at("timing").at("against_step_ms"), times.at("against_step_ms")) << "the same rounds";
    EXPECT_NE(other.at("timing").at("step_ms"), times.at("step_ms"));
    // Images per second, not steps: the second has twice the images of the run beside.
    double log = 0;
    for (size_t round = 0; round < times.at("rounds"); ++round) {
      const auto ms = [&](const Json& steps) { return std::log(steps.at(round).get<double>()); };
      log += (ms(times.at("against_step_ms").at(0)) + ms(times.at("against_step_ms").at(1))) / 2 -
             ms(other.at("timing").at("step_ms"));
    }
    log = log / times.at("rounds").get<double>() + (i == 1 ? std::log(2) : 0);
    EXPECT_NEAR(other.at("timing").at("log_images_per_s"), log, 1e-9);
    EXPECT_EQ(other.at("throughput").at("steps_measured"), other.at("timing").at("steps"));
  }
}

TEST(Turns, ARunInTheWorldOfAnotherIsNotTimedItself) {
  TrainingRuns runs;
  Json elsewhere = timing("per_tower");
  elsewhere["with"] = nullptr;
  const TrainedRun run = runs.run(TrainingRuns::spec({{"strategy", "sync"}, {"timing", elsewhere}}), 2);
  EXPECT_FALSE(run.result.contains("timing"));
}

TEST(Turns, ARunThatCannotBeTimedKeepsItsResult) {
  TrainingRuns runs;
  Json together = timing("per_tower");
  together["with"] = {{{"init_from", {{"file", "/nowhere/weights.safetensors"}}}}};
  for (const int ranks : {1, 2}) {
    const auto reports = runs.reports(TrainingRuns::spec({{"timing", together}}), ranks, runs.new_folder());
    for (const RankReport& report : reports) EXPECT_EQ(report.status, Status::ok) << report.message;
    EXPECT_TRUE(reports[0].result.contains("final"));
    EXPECT_FALSE(reports[0].result.contains("timing"));
    EXPECT_NE(Json(reports[0].notes).dump().find("not timed in turns: "), std::string::npos);
  }
}

TEST(Turns, ARunThatDivergedIsNotTimed) {
  TrainingRuns runs;
  const RunSpec spec = TrainingRuns::spec(
      {{"optimizer", {{"name", "sgd"}, {"lr", 1e30}}}, {"log_every", 1}, {"timing", timing("per_tower")}});
  const auto reports = runs.reports(spec, 2, runs.new_folder());
  ASSERT_EQ(reports[0].status, Status::diverged);
  EXPECT_FALSE(reports[0].result.contains("timing"));
}

}  // namespace
}  // namespace bnlab
