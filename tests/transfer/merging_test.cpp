// Two folders of results, A and B, put together.
#include "harness/transfer/merging.hpp"
#include "harness/store/records.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "harness/store/attempts.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/error.hpp"
#include "tests/file_size_limit.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

class Merging : public ::testing::Test {
 protected:
  Merging() {
    for (const fs::path& folder : {a_, b_}) ask(folder, {{"steps", 300}, {"checkpoint_every", 5}});
  }

  static void ask(const fs::path& folder, const Json& spec) {
    fs::create_directories(folder);
    write_json(folder / kSpecFile, spec);
  }

  // The folder of a run that ended so.
  fs::path save(const fs::path& folder, size_t run, double mean_iou, Status status = Status::ok) {
    RunAccount account = synthetic_account(experiment_.runs.at(run), mean_iou, 1);
    account.outcome.status = status;
    account.started_at = folder == a_ ? "2026-01-02T03:04:05Z" : "2026-01-02T04:00:00Z";
    account.result["throughput"]["images_per_s"] = folder == a_ ? 40 : 50;
    const fs::path place =
        run_folder(folder.parent_path(), "small_batch", account.spec.id, account.placement);
    fs::create_directories(place);
    std::ofstream(place / kWeightsFile) << mean_iou;
    write_json(place / kRecordFile, compose_record(account));
    return place;
  }

  Merged merge(Keep keep = Keep::neither) const { return merge_results(a_, {b_}, keep); }

  std::string refusal() const {
    try {
      merge();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static std::string weights(const fs::path& place) { return read_text(place / kWeightsFile); }

  // Names in A that begin with a dot.
  std::vector<fs::path> hidden() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(a_))
      if (entry.path().filename().string().front() == '.') found.push_back(entry.path());
    return found;
  }

  TemporaryFolder folder_;
  const fs::path a_ = folder_.path() / "a" / "small_batch", b_ = folder_.path() / "b" / "small_batch";
  const Experiment experiment_ = synthetic_experiment(2);
};

TEST_F(Merging, CopiesTheFinishedRunsThatAreLacking) {
  save(a_, 0, 0.5);
  const fs::path interrupted = save(a_, 1, 0.1, Status::interrupted);
  std::ofstream(interrupted / "left") << "of that attempt";
  save(b_, 1, 0.6);
  const fs::path there = save(b_, 2, 0.7);
  std::ofstream(there / ".half.tmp") << "written";
  save(b_, 3, 0.8, Status::interrupted);
  const Merged merged = merge();
  EXPECT_EQ(merged.added, 2);
  EXPECT_EQ(merged.there, 1);
  EXPECT_TRUE(merged.left_out.empty());
  EXPECT_EQ(list_records(a_.parent_path(), "small_batch").size(), 3U);
  EXPECT_EQ(weights(interrupted), "0.6");
  EXPECT_FALSE(fs::exists(interrupted / "left"));
  EXPECT_EQ(weights(a_ / there.lexically_relative(b_)), "0.7");
  EXPECT_TRUE(hidden().empty());
  EXPECT_EQ(merge().there, 3) << "once is as good as twice";
}

TEST_F(Merging, AFolderThatIsNotThereIsMade) {
  save(b_, 0, 0.5);
  fs::remove_all(a_);
  EXPECT_EQ(merge().added, 1);
  EXPECT_EQ(read_json(a_ / kSpecFile).at("steps"), 300);
}

TEST_F(Merging, TheSameResultOnTwoMachinesIsOne) {
  const fs::path place = save(a_, 0, 0.5);
  save(b_, 0, 0.5);
  EXPECT_EQ(merge().there, 1);
  EXPECT_EQ(read_json(place / kRecordFile).at("started_at"), "2026-01-02T03:04:05Z");
}

TEST_F(Merging, TwoResultsOfOneRunAreRefusedUnlessOneIsChosen) {
  const fs::path place = save(a_, 0, 0.5);
  save(b_, 0, 0.6);
  save(b_, 1, 0.7);
  EXPECT_NE(refusal().find("result.final.saved.mean_iou is 0.5 and 0.6"), std::string::npos) << refusal();
  EXPECT_EQ(list_records(a_.parent_path(), "small_batch").size(), 1U) << "nothing was copied";
  EXPECT_EQ(merge(Keep::into).added, 1);
  EXPECT_EQ(weights(place), "0.5");
  EXPECT_EQ(merge(Keep::from).replaced, 1);
  EXPECT_EQ(weights(place), "0.6");
  EXPECT_TRUE(hidden().empty());
}

TEST_F(Merging, ARunStaysAsItIsWhereItsReplacementCannotBeCopied) {
  for (const Status status : {Status::ok, Status::crashed}) {
    const fs::path ours = save(a_, 0, 0.5, status), theirs = save(b_, 0, 0.6);
    std::ofstream(theirs / kPopulationsFile) << std::string(100'000, 'x');
    {
      const FileSizeLimit full_disk(50'000);
      EXPECT_THROW(merge(Keep::from), Error);
    }
    EXPECT_EQ(weights(ours), "0.5");
    EXPECT_TRUE(hidden().empty());
    EXPECT_EQ(merge(Keep::from).replaced, 1);
    EXPECT_EQ(weights(ours), "0.6");
    EXPECT_TRUE(hidden().empty());
  }
}

TEST_F(Merging, ResultsOfOtherCodeAreOtherResults) {
  save(a_, 0, 0.5);
  const fs::path file = save(b_, 0, 0.5) / kRecordFile;
  Json record = read_json(file);
  record["code"]["numerics"]["base"] = "0123456789abcdef";
  write_json(file, record);
  EXPECT_NE(refusal().find("code.numerics"), std::string::npos) << refusal();
}

TEST_F(Merging, OtherSpecsAreRefusedWithTheKeysThatDiffer) {
  save(b_, 0, 0.5);
  ask(b_, {{"steps", 300}, {"checkpoint_every", 7}});
  EXPECT_EQ(refusal(), "");
  ask(b_, {{"steps", 400}, {"optimizer", {{"name", "sgd"}, {"lr", 0.1}}}});
  EXPECT_NE(refusal().find("differ: optimizer.lr is absent and 0.1, "), std::string::npos) << refusal();
  EXPECT_NE(refusal().find("steps is 300 and 400"), std::string::npos) << refusal();
}

TEST_F(Merging, RunsOfAnotherExperimentAreRefusedWhereNoSpecTellsThemApart) {
  save(a_, 0, 0.5);
  const fs::path file = save(b_, 1, 0.6) / kRecordFile;
  Json record = read_json(file);
  record["experiment"] = "tradeoff";
  write_json(file, record);
  fs::remove(b_ / kSpecFile);
  const std::string expected = "the runs in " + a_.string() + " are of small_batch, those in " + b_.string() +
                               " of tradeoff; only runs of one experiment go together";
  EXPECT_NE(refusal().find(expected), std::string::npos) << refusal();
  EXPECT_EQ(list_records(a_.parent_path(), "small_batch").size(), 1U) << "nothing was copied";
}

TEST_F(Merging, WhatTuningChoseIsPartOfTheSpec) {
  save(b_, 0, 0.5);
  const auto tuned = [](double lr) {
    return Json{{"groups", {{{"group", "sync"}, {"chosen", {{"optimizer.lr", lr}}}}}},
                {"scores", Json::object()}};
  };
  write_json(a_ / kTuningFile, tuned(0.1));
  write_json(b_ / kTuningFile, tuned(0.2));
  EXPECT_NE(refusal().find("tuned.sync.optimizer.lr is 0.1 and 0.2"), std::string::npos) << refusal();
  fs::remove_all(a_);
  EXPECT_EQ(merge().added, 1);
  EXPECT_EQ(read_json(a_ / kTuningFile), tuned(0.2));
  for (const auto& [folder, id] : {std::pair(a_, "one"), {b_, "other"}}) {
    Json scored = tuned(0.2);
    scored["scores"][id] = 0.5;
    scored["runs"] = {{{"run_id", id}}};
    write_json(folder / kTuningFile, scored);
  }
  merge();
  EXPECT_EQ(read_json(a_ / kTuningFile).at("scores").size(), 2U);
  EXPECT_EQ(read_json(a_ / kTuningFile).at("runs").size(), 2U);
}

TEST_F(Merging, AFolderWithoutRunsIsAMistake) {
  EXPECT_NE(refusal().find("no finished runs there"), std::string::npos) << refusal();
}

TEST_F(Merging, ARunThatAProcessHasIsLeftToIt) {
  const fs::path place = a_ / save(b_, 0, 0.5).lexically_relative(b_);
  fs::create_directories(place.parent_path());
  std::ofstream(claim_file(place, 1)) << R"({"host": "another", "pid": 7})";  // just now
  const Merged merged = merge();
  EXPECT_EQ(merged.added, 0);
  ASSERT_EQ(merged.left_out.size(), 1U);
  EXPECT_NE(merged.left_out[0].find("process 7 on another"), std::string::npos) << merged.left_out[0];
}

}  // namespace
}  // namespace bnlab
