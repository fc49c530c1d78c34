#include "harness/report/status.hpp"

#include <gtest/gtest.h>

#include "harness/store/records.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::status_test {
namespace {

void save(const std::filesystem::path& results, const RunSpec& run, int ranks, Status outcome,
          const std::string& numerics) {
  RunAccount account = synthetic_account(run, 0.5, ranks);
  account.outcome.status = outcome;
  Json record = compose_record(account);
  if (!numerics.empty()) record["code"]["numerics"]["base"] = numerics;
  const auto folder = run_folder(results, account.experiment, run.id, account.placement);
  std::filesystem::create_directories(folder);
  write_json(folder / kRecordFile, record);
}

TEST(Status, CountsTheRunsOfASpec) {
  const TemporaryFolder results;
  const Experiment experiment = synthetic_experiment(2);  // 8 runs
  save(results.path(), experiment.runs[0], 1, Status::ok, "");
  save(results.path(), experiment.runs[0], 2, Status::crashed, "");  // another placement of a run that is ok
  save(results.path(), experiment.runs[1], 1, Status::error, "");
  save(results.path(), experiment.runs[2], 1, Status::interrupted, "");
  save(results.path(), experiment.runs[3], 1, Status::ok, "an older one");
  const ExperimentStatus status = status_of(experiment, results.path());
  EXPECT_EQ(status.asked, 8);
  EXPECT_EQ(status.finished, 3);
  EXPECT_EQ(status.failed, 1);
  EXPECT_EQ(status.missing(), 5);
  EXPECT_EQ(status.stale, 1);
  EXPECT_EQ(status.outcomes.at("interrupted"), 1);
  EXPECT_EQ(status.done_on, (std::map<std::string, int>{{"1x2-cpu", 1}, {"1x8-cpu", 1}}));
  ASSERT_EQ(status.stale_reasons.size(), 1u);
  EXPECT_NE(status_text({status}).find("small_batch: 1 stale: what computes it has changed"),
            std::string::npos)
      << status_text({status});
}

TEST(Status, CountsFinishedRunsThatTheSpecDoesNotAskFor) {
  const TemporaryFolder results;
  Experiment experiment = synthetic_experiment(2);
  for (size_t i : {0, 1, 2})
    save(results.path(), experiment.runs[i], 1, i == 2 ? Status::interrupted : Status::ok, "");
  EXPECT_EQ(status_of(experiment, results.path()).others, 0);
  experiment.runs.erase(experiment.runs.begin(), experiment.runs.begin() + 3);
  const ExperimentStatus status = status_of(experiment, results.path());
  EXPECT_EQ(status.others, 2);
  EXPECT_NE(status_text({status}).find("that the spec does not ask for"), std::string::npos);
  EXPECT_EQ(status_json({status}).at(0).at("others"), 2);
}

TEST(Status, TellsRunsThatWereTimedWhileOthersUsedTheMachineWithTheCure) {
  const TemporaryFolder results;
  const Experiment experiment = synthetic_experiment(2);
  save(results.path(), experiment.runs[0], 1, Status::ok, "");
  save(results.path(), experiment.runs[1], 1, Status::ok, "");
  EXPECT_EQ(status_of(experiment, results.path()).disturbed, 0);
  EXPECT_EQ(status_text({status_of(experiment, results.path())}).find("timed while"), std::string::npos);
  const auto file =
      run_folder(results.path(), "small_batch", experiment.runs[0].id, {1, 8, Device::cpu}) / kRecordFile;
  Json record = read_json(file);
  record["result"]["timing"] = {{"disturbed", true}};
  write_json(file, record);
  const ExperimentStatus status = status_of(experiment, results.path());
  EXPECT_EQ(status.disturbed, 1);
  EXPECT_EQ(status.ok(), 2) << "its accuracy counts";
  EXPECT_NE(status_text({status}).find("--redo disturbed times them again):\nsmall_batch: 1\n"),
            std::string::npos)
      << status_text({status});
  EXPECT_EQ(status_json({status}).at(0).at("disturbed"), 1);
}

TEST(Status, SaysWhereRunsAreDoneAndForgetsAStaleOneThatAnotherPlacementHasUpToDate) {
  const TemporaryFolder results;
  const Experiment experiment = synthetic_experiment(2);
  save(results.path(), experiment.runs[0], 1, Status::ok, "an older one");
  save(results.path(), experiment.runs[0], 2, Status::ok, "");
  save(results.path(), experiment.runs[1], 1, Status::ok, "");
  const ExperimentStatus status = status_of(experiment, results.path());
  EXPECT_EQ(status.stale, 0);
  EXPECT_NE(status_text({status}).find("2 ok      1x8-cpu 1, 2x4-cpu 1"), std::string::npos)
      << status_text({status});
  EXPECT_EQ(status_json({status}).at(0).at("done_on"), (Json{{"1x8-cpu", 1}, {"2x4-cpu", 1}}));
}

TEST(Status, TellsRunsOfOtherSourcesThatCountAllTheSame) {
  const TemporaryFolder results;
  const Experiment experiment = synthetic_experiment(2);
  save(results.path(), experiment.runs[0], 1, Status::ok, "");
  EXPECT_EQ(status_of(experiment, results.path()).other_sources, 0);
  Record record = list_records(results.path(), "small_batch").front();
  Json changed = record.json();
  changed["code"]["fingerprint"] = "0123456789abcdef";
  write_json(record.file(), changed);
  const ExperimentStatus status = status_of(experiment, results.path());
  EXPECT_EQ(status.other_sources, 1);
  EXPECT_EQ(status.stale, 0);
  EXPECT_NE(status_text({status}).find("sources that have changed since"), std::string::npos);
}

TEST(Status, CountsRunFoldersWhereThereIsNoSpec) {
  const TemporaryFolder results;
  const Experiment experiment = synthetic_experiment(1);
  save(results.path(), experiment.runs[0], 1, Status::ok, "");
  save(results.path(), experiment.runs[1], 1, Status::crashed, "");
  std::filesystem::create_directories(results.path() / "small_batch" / "begun" / "1x8-cpu");
  const ExperimentStatus status = status_of("small_batch", results.path());
  EXPECT_EQ(status.asked, 3);
  EXPECT_EQ(status.finished, 2);
  EXPECT_EQ(status.failed, 1);
  EXPECT_EQ(status.missing(), 1);
  EXPECT_EQ(status_json({status}).at(0).at("outcomes").at("crashed"), 1);
  EXPECT_NE(status_text({status}).find("1 crashed, 1 ok"), std::string::npos) << status_text({status});
}

TEST(Status, SaysWhyRunsFailedEachReasonOnce) {
  const Experiment experiment = synthetic_experiment(1);
  const auto failed = [&](size_t run, Status status, const std::string& message, const std::string& signal) {
    RunAccount account = synthetic_account(experiment.runs[run], 0, 1);
    account.outcome = {status, message, 0, signal, {}};
    return Record(compose_record(account), "results/small_batch/" + experiment.runs[run].id + "/record.json");
  };
  const std::vector<Record> records = {failed(0, Status::crashed, "", "SIGKILL"),
                                       failed(1, Status::error, "no such data\nlooked in a\nlooked in b", ""),
                                       failed(2, Status::error, "no such data\nlooked in c", ""),
                                       failed(3, Status::interrupted, "stopped by the user", "")};
  const RunCounts counts = count_runs(experiment, records);
  EXPECT_EQ(failure_lines(counts.failures),
            (std::vector<std::string>{"2 error: no such data (such as " + experiment.runs[1].id + ")",
                                      "1 crashed: ended by SIGKILL (" + experiment.runs[0].id + ")"}));
  EXPECT_EQ(counts.ok(), 0);
  ExperimentStatus status{counts, "small_batch", {}};
  EXPECT_NE(status_text({status}).find("small_batch: 2 error: no such data"), std::string::npos);
  EXPECT_EQ(status_json({status})[0]["failures"][1]["folder"],
            "results/small_batch/" + experiment.runs[1].id);
}

}  // namespace
}  // namespace bnlab::status_test
