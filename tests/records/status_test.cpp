#include "harness/records/status.hpp"

#include <gtest/gtest.h>

#include "tests/records/synthetic.hpp"
#include "tests/records/temporary_folder.hpp"

namespace bnlab {
namespace {

void save(const std::filesystem::path& results, const RunSpec& run, int ranks, Status outcome,
          const std::string& version) {
  RunAccount account = synthetic_account(run, 0.5, ranks);
  account.outcome.status = outcome;
  Json record = compose_record(account);
  if (!version.empty()) record["code"]["version"] = version;
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

}  // namespace
}  // namespace bnlab
