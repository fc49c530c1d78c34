// Files that end too early, at every byte: what reads them says which one it is, or does without, and never
// takes a part for the whole.
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <iomanip>

#include "harness/queue/active_processes.hpp"
#include "harness/store/inputs.hpp"
#include "harness/store/records.hpp"
#include "harness/store/tuning_scores.hpp"
#include "tests/experiment/spec_files.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

class CutFiles : public SpecFiles {
 protected:
  // Calls `look` for each length of the file that is not the whole, which a missing newline at the end is.
  static void at_every_byte(const fs::path& file, const std::function<void()>& look) {
    const std::string whole = read_text(file);
    ASSERT_GT(whole.size(), 2U);
    for (size_t length = 0; length + 1 < whole.size(); ++length) {
      std::ofstream(file, std::ios::binary) << whole.substr(0, length);
      look();
      ASSERT_FALSE(testing::Test::HasFailure()) << file << " cut at byte " << length;
    }
    std::ofstream(file, std::ios::binary) << whole;
  }

  static void expect_refused(const fs::path& file, const std::function<void()>& read,
                             const std::string& cure = "") {
    try {
      read();
      ADD_FAILURE() << "expected an Error";
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find(file.filename().string()), std::string::npos) << said;
      EXPECT_NE(said.find(cure), std::string::npos) << said;
    }
  }
};

TEST_F(CutFiles, ARecordIsRefusedAndListedAsAProblem) {
  RunAccount account = synthetic_account(synthetic_run("sync", 8, 2, 5), 0.7, 2);
  account.result = {{"steps", 300}};
  const fs::path run = run_folder(folder_, account.experiment, account.spec.id, account.placement);
  fs::create_directories(run);
  write_json(run / kRecordFile, compose_record(account));
  at_every_byte(run / kRecordFile, [&] {
    std::vector<std::string> problems;
    EXPECT_TRUE(list_records(folder_, account.experiment, &problems).empty());
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_NE(problems[0].find((run / kRecordFile).string()), std::string::npos) << problems[0];
  });
  EXPECT_TRUE(find_record(run));
}

TEST_F(CutFiles, ASpecIsRefused) {
  const fs::path file = write("spec.json", spec(R"("matrix": {"seed": [0, 1]})"));
  at_every_byte(file, [&] { expect_refused(file, [&] { load_experiment(file.string()); }); });
}

TEST_F(CutFiles, ScoresOfATuningAreRefusedWithTheCure) {
  Experiment experiment = load(
      spec(R"("matrix": {"seed": [0, 1]}, "tune": {"metric": "mean_iou", "grid": {"optimizer.lr": [0.1, 0.2]},
           "seeds": [100]})"));
  std::vector<Record> records;
  for (const RunSpec& run : experiment.tuning->runs.runs) {
    RunAccount account = synthetic_account(run, 0.5, 1);
    account.outcome.status = records.empty() ? Status::diverged : Status::ok;
    records.emplace_back(compose_record(account), "record.json");
  }
  const TuningScores scores = scores_of(*experiment.tuning, records);
  settle(experiment, scores);
  keep_scores(experiment, records, folder_);
  const fs::path file = folder_ / experiment.name / kTuningFile;
  at_every_byte(file,
                [&] { expect_refused(file, [&] { kept_scores(experiment, folder_); }, "remove the file"); });
  EXPECT_EQ(kept_scores(experiment, folder_), scores);
}

TEST_F(CutFiles, ScoresOfAnotherMetricChooseNothing) {
  const auto tuned = [&](const std::string& metric) {
    return load(spec(R"("matrix": {"seed": [0, 1]}, "tune": {"metric": ")" + metric +
                     R"(", "grid": {"optimizer.lr": [0.1, 0.2]}, "seeds": [100]})"));
  };
  const auto records_of = [](const Experiment& experiment) {
    std::vector<Record> records;
    for (const RunSpec& run : experiment.tuning->runs.runs) records.push_back(synthetic_record(run, 0.5, 1));
    return records;
  };
  Experiment experiment = tuned("mean_iou"), other = tuned("pixel_accuracy");
  settle(experiment, scores_of(*experiment.tuning, records_of(experiment)));
  keep_scores(experiment, records_of(experiment), folder_);
  EXPECT_EQ(kept_scores(experiment, folder_).size(), 2u);
  EXPECT_TRUE(kept_scores(other, folder_).empty());
  settle(other, scores_of(*other.tuning, records_of(other)));
  keep_scores(other, records_of(other), folder_);
  for (const auto& [id, score] : kept_scores(other, folder_)) EXPECT_EQ(score, 0.9) << id;
  EXPECT_TRUE(kept_scores(experiment, folder_).empty());
}

TEST_F(CutFiles, WhatRunsReadLastIsKeptForEachSeedWhereSeedsHaveFilesOfTheirOwn) {
  LastInputs last(folder_);
  const auto of_seed = [](uint64_t seed) {
    RunSpec run = synthetic_run("sync", 8, 2, seed);
    run.resolved["init_from"] = {{"file", "net{seed}-*/w"}, {"part", "all"}};
    return run;
  };
  last.set(of_seed(5), {{"weights", "five"}});
  last.set(of_seed(6), {{"weights", "six"}});
  EXPECT_EQ(last.of(of_seed(5).resolved), (Json{{"weights", "five"}}));
  EXPECT_EQ(last.of(of_seed(6).resolved), (Json{{"weights", "six"}}));
}

TEST_F(CutFiles, WhatRunsReadLastIsForgotten) {
  const RunSpec run = synthetic_run("sync", 8, 2, 5);
  const Json inputs = {{"data", {{"files", 3}, {"bytes", 12}, {"fingerprint", "1f3a9c2b4d5e6f70"}}}};
  LastInputs last(folder_);
  last.set(run, inputs);
  last.keep();
  at_every_byte(folder_ / "inputs.json",
                [&] { EXPECT_TRUE(LastInputs(folder_).of(run.resolved).is_null()); });
  EXPECT_EQ(LastInputs(folder_).of(run.resolved), inputs);
}

// The whole file tells a wrong hash of a file with the right stamp, which is believed; a part of it must not
// be.
TEST_F(CutFiles, HashesThatAreLostAreComputedAgain) {
  RunSpec run = synthetic_run("sync", 8, 2, 5);
  run.init_from.emplace();
  run.init_from->file = write("weights", std::string("\2\0\0\0\0\0\0\0{}", 10));
  const auto fingerprint = [&] { return Inputs(folder_, "", [](const std::string&) {}).of(run); };
  const Json expected = fingerprint();
  struct stat status{};
  ASSERT_EQ(::stat(run.init_from->file.c_str(), &status), 0);
  std::ostringstream text;
  text << "bnlab hashes 1\n0123456789abcdef 10 " << status.st_ino << " " << status.st_ctim.tv_sec
       << std::setw(9) << std::setfill('0') << status.st_ctim.tv_nsec << " " << run.init_from->file << "\n";
  const fs::path cache = write(".hashes", text.str());
  EXPECT_NE(fingerprint(), expected);
  at_every_byte(cache, [&] { EXPECT_EQ(fingerprint(), expected); });
}

TEST_F(CutFiles, AClaimIsNobodysWhoCouldBeSeenToBeDead) {
  const fs::path claim = write(".1x2-cpu.claim.1", this_holder() + "\n");
  at_every_byte(claim, [&] {
    EXPECT_FALSE(ClaimHolder(claim).has_died());
    EXPECT_FALSE(ClaimHolder(claim).is_on_this_machine());
    EXPECT_FALSE(ClaimHolder(claim).name().empty());
  });
  EXPECT_TRUE(ClaimHolder(claim).is_on_this_machine());
}

}  // namespace
}  // namespace bnlab
