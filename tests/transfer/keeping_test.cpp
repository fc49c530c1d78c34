// Runs that were moved into the ledger of their experiment, read as they were in their folders.
#include "harness/transfer/keeping.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/store/attempts.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/metrics_log.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "harness/transfer/merging.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "small_batch";
const std::string kLog = R"({"kind":"train","step":10,"loss":0.5})";

class Keeping : public ::testing::Test {
 protected:
  fs::path save(const RunSpec& run, double mean_iou, Status status = Status::ok,
                const std::string& log = kLog + "\n") const {
    RunAccount account = synthetic_account(run, mean_iou, 1);
    account.outcome.status = status;
    const fs::path folder = run_folder(root_.path(), kName, run.id, account.placement);
    fs::create_directories(folder);
    std::ofstream(folder / kMetricsFile) << log;
    std::ofstream(folder / "rank0.log") << "a log";
    write_json(folder / kRecordFile, compose_record(account));
    return folder;
  }
  std::vector<Record> records(std::vector<std::string>* problems = nullptr) const {
    return list_records(root_.path(), kName, problems);
  }
  static std::vector<Json> log_of(const fs::path& folder) {
    std::vector<Json> lines;
    EXPECT_EQ(read_metrics(folder, [&](const Json& line) { lines.push_back(line); }), "");
    return lines;
  }

  TemporaryFolder root_;
  const fs::path experiment_ = root_.path() / kName, ledger_ = experiment_ / kLedgerFile;
  const RunSpec run_ = synthetic_run("sync", 8, 2, 0), other_ = synthetic_run("per_tower", 8, 2, 0);
};

TEST_F(Keeping, RecordsAndLogsAreAsTheyWereAndFoldersAreGone) {
  const fs::path folder = save(run_, 0.1 + 0.2), other = save(other_, 1.0 / 3);
  const std::vector<Record> before = records();
  const KeepSummary kept = keep_runs(experiment_);
  EXPECT_EQ(kept.runs, 2);
  EXPECT_EQ(kept.added, 2);
  EXPECT_TRUE(kept.left.empty());
  EXPECT_FALSE(fs::exists(folder.parent_path()));
  const std::vector<Record> after = records();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(after[i].json(), before[i].json());
    EXPECT_EQ(after[i].folder(), before[i].folder());
    EXPECT_EQ(after[i].file(), ledger_.string() + ":" + std::to_string(i + 1));
  }
  EXPECT_EQ(log_of(other), std::vector{Json::parse(kLog)});
  EXPECT_EQ(list_experiments(root_.path()), std::vector<std::string>{kName});
}

TEST_F(Keeping, ASecondTimeChangesNothing) {
  save(run_, 0.5);
  keep_runs(experiment_);
  const std::string text = read_text(ledger_);
  EXPECT_EQ(keep_runs(experiment_).added, 0);
  EXPECT_EQ(read_text(ledger_), text);
}

TEST_F(Keeping, ARunThatWasMadeAgainGoesBeforeItsLineAndTakesItsPlace) {
  save(run_, 0.5);
  keep_runs(experiment_);
  save(run_, 0.75);
  EXPECT_EQ(metric_of(records().front(), "mean_iou", "saved"), 0.75);
  EXPECT_EQ(keep_runs(experiment_).added, 1);
  EXPECT_EQ(metric_of(records().front(), "mean_iou", "saved"), 0.75);
  EXPECT_EQ(records().size(), 1U);
}

TEST_F(Keeping, ARunThatWasMadeAgainWithoutALogHasNoneOfItsLine) {
  save(run_, 0.5);
  keep_runs(experiment_);
  const fs::path folder = save(run_, 0.75);
  fs::remove(folder / kMetricsFile);
  EXPECT_TRUE(log_of(folder).empty());
  keep_runs(experiment_);
  EXPECT_TRUE(log_of(folder).empty());
}

TEST_F(Keeping, WeightsStayInTheirFolder) {
  const fs::path folder = save(run_, 0.5);
  std::ofstream(folder / kWeightsFile) << "weights";
  const KeepSummary kept = keep_runs(experiment_);
  EXPECT_EQ(kept.runs, 1);
  ASSERT_EQ(kept.left.size(), 1U);
  EXPECT_NE(kept.left.front().find(kWeightsFile), std::string::npos) << kept.left.front();
  EXPECT_TRUE(fs::exists(folder / kWeightsFile));
  EXPECT_TRUE(fs::exists(folder / kRecordFile));
}

TEST_F(Keeping, WhatIsNotFinishedDamagedOrClaimedIsLeftAlone) {
  const fs::path interrupted = save(run_, 0.5, Status::interrupted);
  const fs::path damaged = save(other_, 0.5, Status::ok, "no JSON\n" + kLog + "\n");
  const fs::path claimed = save(synthetic_run("sync", 8, 2, 1), 0.5);
  std::ofstream(claim_file(claimed, 1)) << "somebody";
  const KeepSummary kept = keep_runs(experiment_);
  EXPECT_EQ(kept.runs, 0);
  ASSERT_EQ(kept.left.size(), 1U);
  EXPECT_NE(kept.left.front().find(kMetricsFile), std::string::npos) << kept.left.front();
  for (const fs::path& folder : {interrupted, damaged, claimed})
    EXPECT_TRUE(fs::exists(folder / kRecordFile));
  EXPECT_FALSE(fs::exists(ledger_));
}

TEST_F(Keeping, ADamagedLineIsNamedAndNothingIsWrittenOverIt) {
  save(run_, 0.5);
  keep_runs(experiment_);
  const std::string line = read_text(ledger_);
  const auto called = [&](const std::string& id) {
    std::string other = line;
    return other.replace(other.find(run_.id), run_.id.size(), id);
  };
  for (const std::string& damage : {std::string("{\"run_id\": 3}\n"), line.substr(0, 100) + "\n", line,
                                    called("../../elsewhere"), called(std::string(256, 'a'))}) {
    const std::string text = line + damage;
    write_atomically(ledger_, text);
    std::vector<std::string> problems;
    EXPECT_EQ(records(&problems).size(), 1U);
    ASSERT_EQ(problems.size(), 1U) << damage;
    EXPECT_NE(problems.front().find(ledger_.string() + ":2"), std::string::npos) << problems.front();
    EXPECT_THROW(keep_runs(experiment_), Error);
    EXPECT_EQ(read_text(ledger_), text);
  }
}

TEST_F(Keeping, AKeptRunIsMergedIntoAFolderThatLacksIt) {
  const fs::path folder = save(run_, 0.5);
  const Json record = records().front().json();
  keep_runs(experiment_);
  const fs::path into = root_.path() / "elsewhere" / kName;
  EXPECT_EQ(merge_results(into, {experiment_}, Keep::neither).added, 1);
  EXPECT_EQ(list_records(into.parent_path(), kName).front().json(), record);
  EXPECT_EQ(log_of(into / folder.lexically_relative(experiment_)), std::vector{Json::parse(kLog)});
  EXPECT_EQ(merge_results(into, {experiment_}, Keep::neither).there, 1);
}

}  // namespace
}  // namespace bnlab
