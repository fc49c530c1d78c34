// What an experiment declared and when, and what its report says of it.
#include "harness/store/declarations.hpp"

#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

class Declarations : public ::testing::Test {
 protected:
  Declarations() { experiment_.asked["matrix"]["seed"] = {0, 1}; }

  // As if a run had finished that began at this time.
  void finish(const RunSpec& run, const std::string& started_at) {
    RunAccount account = synthetic_account(run, run.strategy.at("name") == "sync" ? 0.6 : 0.5, 1);
    account.started_at = started_at;
    const fs::path place = run_folder(results_.path(), experiment_.name, run.id, account.placement);
    fs::create_directories(place);
    write_json(place / kRecordFile, compose_record(account));
  }
  void finish_all() {
    for (const RunSpec& run : experiment_.runs) finish(run, "2999-01-01T00:00:00Z");
  }

  std::string keep() { return keep_declaration(experiment_, results_.path()); }
  std::vector<Declaration> kept() const { return kept_declarations(results_.path(), experiment_.name); }
  ExperimentReport report() const {
    return make_report(experiment_, list_records(results_.path(), experiment_.name), kept());
  }
  std::string sentences() const { return joined(report().declared, " "); }

  TemporaryFolder results_;
  Experiment experiment_ = synthetic_experiment(2);
};

TEST_F(Declarations, BeforeTheFirstRunSaySoWithTheTime) {
  EXPECT_EQ(keep(), "");
  finish_all();
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_EQ(kept()[0].finished_runs, 0);
  EXPECT_EQ(kept()[0].fingerprint.size(), 16u);
  EXPECT_NE(sentences().find("The comparison was declared before the first run, on 20"), std::string::npos)
      << sentences();
  EXPECT_EQ(report().declared_in_short, "declared before the first run");
  EXPECT_EQ(report_json(report())["contrasts"][0]["declared_after_runs"], 0);
}

TEST_F(Declarations, AreKeptOnceHoweverOftenRunsStart) {
  keep();
  finish_all();
  EXPECT_EQ(keep(), "");
  EXPECT_EQ(kept().size(), 1u);
}

TEST_F(Declarations, OfAnExperimentThatComparesNothingLeaveNoFile) {
  experiment_.contrasts.clear();
  keep();
  EXPECT_TRUE(kept().empty());
  EXPECT_FALSE(fs::exists(results_.path() / experiment_.name));
}

TEST_F(Declarations, AfterALookSayAfterHowManyRuns) {
  keep();
  finish_all();
  Contrast later = experiment_.contrasts[0];
  later.at = {{"towers", 2}};
  experiment_.contrasts.push_back(later);
  EXPECT_NE(sentences().find("sync - per_tower at 2x8: not declared when runs were started"),
            std::string::npos)
      << sentences();
  EXPECT_NE(keep().find("after 8 finished runs"), std::string::npos);
  EXPECT_NE(sentences().find("sync - per_tower at 2x8: declared after 8 runs"), std::string::npos)
      << sentences();
  EXPECT_NE(sentences().find("sync - per_tower at 8x2: declared before the first run"), std::string::npos)
      << sentences();
  EXPECT_EQ(report().declared_in_short, "1 of them declared after runs had finished");
}

TEST_F(Declarations, ThatWereTurnedRoundOrGivenAMarginAreOthers) {
  keep();
  finish_all();
  experiment_.contrasts[0].equivalence_margin = 0.02;
  EXPECT_NE(sentences().find("not declared when runs were started"), std::string::npos) << sentences();
  EXPECT_NE(sentences().find("Declared once and dropped since: {\"metric\":\"mean_iou\""), std::string::npos)
      << sentences();
  Contrast other = experiment_.contrasts[0];
  other.equivalence_margin.reset();
  experiment_.contrasts = {other};
  experiment_.contrasts[0].at = {{"towers", 2}};
  keep();
  EXPECT_EQ(report().declared_in_short, "1 of them declared after runs had finished; 1 dropped since");
}

TEST_F(Declarations, TellOfSeedsThatWereAddedAfterALook) {
  keep();
  finish_all();
  experiment_.asked["matrix"]["seed"] = {0, 1, 2};
  keep();
  EXPECT_NE(sentences().find("The comparison was declared before the first run"), std::string::npos);
  EXPECT_NE(sentences().find("Changed after 8 runs, on 20"), std::string::npos) << sentences();
  EXPECT_NE(sentences().find(": matrix."), std::string::npos) << sentences();
  EXPECT_EQ(report().declared_in_short, "declared before the first run; matrix changed after 8 runs");
}

TEST_F(Declarations, TellOfSettingsThatWereChangedAfterALook) {
  experiment_.asked.update({{"steps", 300}, {"log_every", 10}, {"optimizer", {{"lr", 0.1}}}});
  keep();
  finish_all();
  experiment_.asked["log_every"] = 20;  // changes no result
  keep();
  EXPECT_EQ(kept().size(), 1u);
  experiment_.asked["optimizer"]["lr"] = 0.05;
  experiment_.asked.erase("steps");
  keep();
  EXPECT_NE(sentences().find(": optimizer, steps."), std::string::npos) << sentences();
  EXPECT_EQ(report().declared_in_short,
            "declared before the first run; optimizer, steps changed after 8 runs");
}

TEST_F(Declarations, OfOlderProgramsHaveNoSettingsThatCouldHaveChanged) {
  keep();
  finish_all();
  const fs::path file = results_.path() / experiment_.name / kDeclarationsFile;
  Json older = read_json(file);
  older["declarations"][0]["declared"].erase("settings");
  write_json(file, older);
  experiment_.asked["steps"] = 600;
  EXPECT_EQ(keep(), "");
  EXPECT_EQ(kept().size(), 1u);
  experiment_.asked["matrix"]["seed"] = {0, 1, 2};
  keep();
  EXPECT_NE(sentences().find(": matrix."), std::string::npos) << sentences();
}

// Records that came from elsewhere may be older than the declaration beside them.
TEST_F(Declarations, LaterThanTheBeginOfARunTheyCompareComeAfterIt) {
  keep();
  finish_all();
  finish(experiment_.runs[0], "2020-01-01T00:00:00Z");
  EXPECT_NE(sentences().find("The comparison was declared after 1 run, "), std::string::npos) << sentences();
}

TEST_F(Declarations, ThatWereNeverKeptAreSaidToBeUnknown) {
  finish_all();
  EXPECT_NE(sentences().find("When the comparisons were declared was not kept"), std::string::npos);
  EXPECT_EQ(report().declared_in_short, "the time of declaration was not kept");
}

TEST_F(Declarations, OfTwoFoldersThatShareTheWorkMergeToTheEarlierTime) {
  keep();
  const fs::path here = results_.path() / experiment_.name, there = results_.path() / "there";
  fs::create_directories(there);
  Json theirs = read_json(here / kDeclarationsFile);
  theirs["declarations"][0]["at"] = "2026-01-01T00:00:00Z";
  write_json(there / kDeclarationsFile, theirs);
  merge_declarations(here, there);
  ASSERT_EQ(kept().size(), 1u);
  EXPECT_EQ(kept()[0].at, "2026-01-01T00:00:00Z");
}

TEST_F(Declarations, ThatCannotBeReadAreAnErrorWithThePlace) {
  fs::create_directories(results_.path() / experiment_.name);
  const Json number_for_what_was_declared = {
      {"at", "2026-11-28T14:40:01Z"}, {"finished_runs", 0}, {"fingerprint", ""}, {"declared", 5}};
  for (const auto& [declaration, key] : {std::pair(Json{{"at", 3}}, "declarations[0]"),
                                         {number_for_what_was_declared, "declarations[0].declared"}}) {
    write_json(results_.path() / experiment_.name / kDeclarationsFile, {{"declarations", {declaration}}});
    try {
      kept();
      FAIL();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("declarations.json: expected"), std::string::npos)
          << error.what();
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace bnlab
