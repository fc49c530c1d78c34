#include "harness/training/history.hpp"

#include <fstream>
#include <iterator>

#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

TEST(RunLog, AFullDiskEndsTheRunWithTheFileAndTheCause) {
  try {
    RunLog log("/dev/full", "run");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::environment);
    EXPECT_STREQ(error.what(), "cannot write /dev/full: No space left on device");
  }
}

TEST(RunLog, WhatCannotBeOpenedToo) {
  try {
    RunLog log("/nowhere/metrics.jsonl", "run");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "cannot open /nowhere/metrics.jsonl: No such file or directory");
  }
}

TEST(History, AnEvaluationBeforeTheFirstReportHasNoTrainingLoss) {
  TrainingRuns runs;
  const TrainedRun run = runs.run(TrainingRuns::spec({{"eval_every", 2}, {"log_every", 3}}), 1);  // 5 steps
  const Json& history = run.result.at("history");
  ASSERT_EQ(history.size(), 3u);
  EXPECT_TRUE(history[0].at("train_loss").is_null());
  EXPECT_EQ(history[1].at("train_loss"), run.losses[0]);
  EXPECT_EQ(history[2].at("train_loss"), run.losses[1]);
}

TEST(RunLog, ARunWhoseLinesAreLostIsNotOk) {
  TrainingRuns runs;
  const fs::path folder = runs.new_folder();
  fs::create_symlink("/dev/full", folder / kMetricsFile);
  const RankReport report = runs.reports(TrainingRuns::spec(), 1, folder).at(0);
  EXPECT_EQ(report.status, Status::error);
  EXPECT_EQ(report.message, "cannot write " + (folder / kMetricsFile).string() + ": No space left on device");
}

}  // namespace
}  // namespace bnlab
