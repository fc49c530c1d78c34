// A matrix that is tuned first, from the command to the table. The fake runs are best at the learning rate
// 0.1.
#include <gtest/gtest.h>

#include <fstream>

#include "harness/store/attempts.hpp"
#include "harness/store/records.hpp"
#include "harness/store/tuning_scores.hpp"
#include "harness/support/json.hpp"
#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::behaves;
using test::has;

class TunedMatrix : public test::OnResults {
 protected:
  std::string spec(const std::string& grid = "[0.05, 0.1, 0.2]", const std::string& behaviour = "ok") const {
    return scratch_.write_spec(behaves(behaviour),
                               R"(, "matrix": {"seed": [0, 1], "strategy": ["left", "right"]},
      "tune": {"metric": "mean_iou", "seeds": [100, 101], "grid": {"optimizer.lr": )" +
                                   grid + "}}");
  }
  std::vector<Record> tuning_records() const { return list_records(scratch_ / "results", "fake-tuning"); }
  Json kept() const { return read_json(scratch_ / "results/fake/tuning.json"); }
};

TEST_F(TunedMatrix, IsTunedOnceAndThenRunWithWhatWasChosen) {
  const Answer first = call_with_results({"run", spec(), "--ranks", "1"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(has(first.err, "first, mean_iou (saved statistics) chooses optimizer.lr for each strategy"))
      << first.err;
  EXPECT_TRUE(has(first.err, "chosen for left: 0.1  (0.05: 0.455, 0.1: 0.505, 0.2: 0.405)")) << first.err;
  EXPECT_EQ(tuning_records().size(), 12U);
  ASSERT_EQ(scratch_.records().size(), 4U);
  EXPECT_EQ(scratch_.records()[0].at("spec.optimizer.lr"), 0.1);
  EXPECT_EQ(kept().at("groups").at(1).at("chosen").at("optimizer.lr"), 0.1);
  EXPECT_EQ(kept().at("scores").size(), 12U);

  std::filesystem::remove_all(scratch_ / "results/fake-tuning");  // the choice stands with the matrix
  const Answer again = call_with_results({"run", spec(), "--ranks", "1"});
  EXPECT_TRUE(has(again.err, "4 were done before")) << again.err;
  EXPECT_TRUE(tuning_records().empty());
}

TEST_F(TunedMatrix, ThatAsksForOtherRatesIsTunedAnew) {
  call_with_results({"run", spec(), "--ranks", "1"});
  const Answer wider = call_with_results({"run", spec("[0.05, 0.1, 0.2, 0.4]"), "--ranks", "1"});
  EXPECT_EQ(wider.code, 0) << wider.err;
  EXPECT_EQ(tuning_records().size(), 16U) << "what was run before is not run again";
  EXPECT_EQ(kept().at("scores").size(), 16U);
}

TEST_F(TunedMatrix, WhatWasChosenOutlivesAnotherChoiceByOtherKeys) {
  call_with_results({"run", spec(), "--ranks", "1"});
  std::filesystem::remove_all(scratch_ / "results/fake-tuning");
  EXPECT_EQ(call_with_results({"run", spec(), "--ranks", "1", "steps=5"}).code, 0);
  EXPECT_EQ(kept().at("scores").size(), 24U);
  EXPECT_EQ(kept().at("runs").size(), 24U);
  EXPECT_TRUE(has(call_with_results({"plan", spec(), "--ranks", "1"}).out, "0 of 4 runs to start"));
  EXPECT_EQ(kept().at("spec").at("steps"), 5);
  call_with_results({"run", spec(), "--ranks", "1"});
  EXPECT_EQ(kept().at("spec").at("steps"), 5) << "the same choice need not be written again";
  call_with_results({"run", spec("[0.05, 0.2]"), "--ranks", "1"});
  EXPECT_EQ(kept().at("groups").at(0).at("chosen").at("optimizer.lr"), 0.05)
      << "from the scores that are kept";
  EXPECT_EQ(kept().at("runs").size(), 24U);
}

TEST_F(TunedMatrix, RunsOfAnEarlierSpecNeedNoScore) {
  const auto spec_by = [&](const std::string& metric, const std::string& rates) {
    return scratch_.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0], "strategy": ["left"]},
      "tune": {"metric": ")" + metric + R"(", "seeds": [100], "grid": {"optimizer.lr": )" +
                                                  rates + "}}");
  };
  call_with_results({"run", spec_by("mean_iou", "[0.05, 0.4]"), "--ranks", "1"});
  for (const Record& record : tuning_records()) {
    Json without = record.json();
    without["result"]["final"]["saved"].erase("mean_iou");  // as if it were of another task
    write_json(record.file(), without);
  }
  const Answer answer = call_with_results({"run", spec_by("mean_iou", "[0.1, 0.2]"), "--ranks", "1"});
  EXPECT_EQ(answer.code, 0) << answer.err;
}

TEST_F(TunedMatrix, AMetricThatTheRunsLackChoosesNothing) {
  const std::string file =
      scratch_.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0], "strategy": ["left"]},
      "tune": {"metric": "images_per_s", "seeds": [100], "grid": {"optimizer.lr": [0.1, 0.2]}})");
  const Answer answer = call_with_results({"run", file, "--ranks", "1"});
  EXPECT_EQ(answer.code, exit_code::kUsage) << answer.err;
  EXPECT_TRUE(has(answer.err, "ended ok and has no images_per_s to choose by")) << answer.err;
  EXPECT_TRUE(scratch_.records().empty());
}

TEST_F(TunedMatrix, WaitsForRunsThatOthersHave) {
  call_with_results({"run", spec(), "--ranks", "1"});
  const auto folder = tuning_records()[0].file().parent_path();
  std::filesystem::remove_all(folder);
  std::filesystem::remove(scratch_ / "results/fake/tuning.json");
  std::ofstream(claim_file(folder, 1))
      << R"({"host": "another", "pid": 7, "renews_every_s": 0.25})";  // which is not heard of any more
  const Answer answer = call_with_results({"run", spec(), "--ranks", "1", "--steal-after", "3"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.err, "left to others: process 7 on another")) << answer.err;
  EXPECT_EQ(kept().at("scores").size(), 12U);
}

TEST_F(TunedMatrix, IsTunedWholeWhateverPartIsAskedFor) {
  const Answer part =
      call_with_results({"run", spec(), "--ranks", "1", "--only", "strategy=left", "--only", "seed=1"});
  EXPECT_EQ(part.code, 0) << part.err;
  EXPECT_EQ(tuning_records().size(), 12U);
  EXPECT_EQ(scratch_.records().size(), 1U);
}

TEST_F(TunedMatrix, IsNotTunedForAPartThatIsNotThere) {
  for (const char* command : {"plan", "run"}) {
    const Answer answer = call_with_results({command, spec("[0.1, 0.2]"), "--only", "strategy=lefft"});
    EXPECT_EQ(answer.code, exit_code::kUsage);
    EXPECT_TRUE(has(answer.err, "no run has")) << answer.err;
  }
  EXPECT_EQ(call_with_results({"plan", spec("[0.1, 0.2]"), "--only", "optimizer.lr=0.2"}).code, 0)
      << "the rate may be chosen";
}

TEST_F(TunedMatrix, WaitsForRunsThatFailed) {
  const Answer answer = call_with_results({"run", spec("[0.1]", "exit"), "--ranks", "1"});
  EXPECT_EQ(answer.code, exit_code::kFailed);
  EXPECT_TRUE(has(answer.err, "4 of the runs that tune it have failed")) << answer.err;
  EXPECT_TRUE(has(answer.err, "--redo failed")) << answer.err;
  EXPECT_TRUE(scratch_.records().empty());
}

TEST_F(TunedMatrix, DivergedRunsAreScores) {
  const Answer answer = call_with_results({"run", spec("[0.1, 0.2]", "diverge"), "--ranks", "1"});
  EXPECT_EQ(scratch_.records().size(), 4U) << answer.err;
  EXPECT_TRUE(kept().at("scores").begin().value().is_null());
}

TEST_F(TunedMatrix, IsPlannedFromItsFirstRunsOn) {
  const Answer before = call_with_results({"plan", spec(), "--ranks", "1"});
  EXPECT_TRUE(has(before.out, "12 of 12 runs to start")) << before.out;
  EXPECT_TRUE(has(before.err, "then 4 runs of the matrix follow")) << before.err;
  EXPECT_EQ(call_with_results({"plan", spec(), "--todo"}).code, exit_code::kUsage);
  call_with_results({"run", spec(), "--ranks", "1"});
  EXPECT_TRUE(has(call_with_results({"plan", spec(), "--ranks", "1"}).out, "0 of 4 runs to start"));
}

TEST_F(TunedMatrix, ShowsItsChoiceAndWarnsAtTheEdgeOfTheGrid) {
  EXPECT_TRUE(has(call_with_results({"report", spec("[0.1, 0.2]")}).out, "Not tuned yet"));
  call_with_results({"run", spec("[0.1, 0.2]"), "--ranks", "1"});
  const std::string text = call_with_results({"report", spec("[0.1, 0.2]")}).out;
  EXPECT_TRUE(has(text, "strategy  chosen")) << text;
  EXPECT_TRUE(has(text, "0.505")) << text;
  EXPECT_TRUE(has(text, "the best optimizer.lr of left, 0.1, lies at the")) << text;
  const Json json = Json::parse(call_with_results({"report", spec("[0.1, 0.2]"), "--format", "json"}).out);
  EXPECT_EQ(json.at("tuning").at("groups").at(0).at("tried").at(1).at("scores").size(), 2U);
}

// The fake runs score the same at any length.
TEST_F(TunedMatrix, ChoosesItsLengthAndKeepsWhatMadeTheChoice) {
  const std::string file =
      scratch_.write_spec(behaves("ok"), R"(, "matrix": {"seed": [0, 1], "strategy": ["left", "right"]},
      "tune": {"metric": "mean_iou", "seeds": [100], "grid": {"optimizer.lr": [0.1, 0.2]},
               "lengths": [10, 20, 40, 80]})");
  const Answer before = call_with_results({"plan", file, "--ranks", "1"});
  EXPECT_TRUE(has(before.out, "8 of 8 runs to start")) << before.out;
  EXPECT_TRUE(has(before.err, "up to 8 longer runs tune it, too")) << before.err;
  const Answer first = call_with_results({"run", file, "--ranks", "1"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_TRUE(has(first.err, "chosen for all: 10 steps: doubling them gains each strategy less than 0.01"))
      << first.err;
  EXPECT_EQ(tuning_records().size(), 8U) << "two lengths are enough";
  EXPECT_EQ(scratch_.records().at(0).at("spec.steps"), 10);
  EXPECT_EQ(kept().at("length").at("tried"), (Json{10, 20}));
  ASSERT_EQ(kept().at("runs").size(), 8U);
  EXPECT_EQ(kept().at("runs").at(0).at("seed"), 100);
  EXPECT_EQ(kept().at("spec").at("matrix").at("seed"), Json{100});
  std::filesystem::remove_all(scratch_ / "results/fake-tuning");
  EXPECT_TRUE(has(call_with_results({"run", file, "--ranks", "1"}).err, "4 were done before"));
  const std::string text = call_with_results({"report", file}).out;
  EXPECT_TRUE(has(text, "Length: 10 steps: doubling them gains each strategy less than 0.01.")) << text;
  EXPECT_TRUE(has(text, "after 20")) << text;
}

TEST_F(TunedMatrix, ADamagedChoiceIsNamed) {
  call_with_results({"run", spec(), "--ranks", "1"});
  std::ofstream(scratch_ / "results/fake/tuning.json") << R"({"scores": {"left": "good"}})";
  const Answer answer = call_with_results({"report", spec()});
  EXPECT_NE(answer.code, 0);
  EXPECT_TRUE(has(answer.err, "tuning.json: expected a number or null")) << answer.err;
}

}  // namespace
}  // namespace bnlab
