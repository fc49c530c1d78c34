// What `run` and `plan` say of runs that were made before, and of the spec that they are given.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "harness/support/json.hpp"
#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;
using RunAgain = test::OnResults;
using PlanAgain = test::OnResults;

TEST_F(RunAgain, EarlierFailuresAreStillFailures) {
  const auto spec = scratch_.write_spec(test::behaves("refuse"));
  call_with_results({"run", spec});
  const Answer again = call_with_results({"run", spec});
  EXPECT_EQ(again.code, exit_code::kFailed);
  EXPECT_TRUE(has(again.err, "1 had failed before")) << again.err;
  EXPECT_TRUE(has(again.err, "error: this strategy refuses")) << again.err;
  EXPECT_TRUE(has(again.err, "--redo failed")) << again.err;
}

TEST_F(RunAgain, StaleRunsAreToldWithReasonAndCure) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  call_with_results({"run", spec});
  Json record = scratch_.records().at(0).json();
  record["code"]["numerics"]["base"] = "0123456789abcdef";
  write_json(scratch_.records().at(0).file(), record);
  const Answer again = call_with_results({"run", spec});
  EXPECT_EQ(again.code, 0);
  EXPECT_TRUE(has(again.err, "stale: 1 finished run")) << again.err;
  EXPECT_TRUE(has(again.err, "--redo stale")) << again.err;
  EXPECT_TRUE(has(call_with_results({"plan", spec}).out, "ok, stale"));
  EXPECT_TRUE(has(call_with_results({"report", spec}).out, "1 (1 stale)"));
  const std::string page = scratch_ / "page.md";
  std::ofstream(page) << "<!-- summary:fake -->\n<!-- end -->\n<!-- table:fake -->\n<!-- end -->\n";
  EXPECT_EQ(call_with_results({"report", spec, "--into", page}).code, 0);
  EXPECT_TRUE(has(read_text(page), "left") && !has(read_text(page), "stale)")) << read_text(page);
}

TEST_F(RunAgain, DisturbedRunsAreToldWithTheCure) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  call_with_results({"run", spec});
  Json record = scratch_.records().at(0).json();
  record["result"]["timing"] = {{"disturbed", true}};
  write_json(scratch_.records().at(0).file(), record);
  EXPECT_TRUE(has(call_with_results({"run", spec}).err, "--redo disturbed"));
  EXPECT_TRUE(has(call_with_results({"plan", spec}).out, "ok, disturbed"));
  EXPECT_FALSE(has(call_with_results({"run", spec, "--redo", "disturbed"}).err, "disturbed: others"));
}

TEST_F(RunAgain, TooLittleDiskIsToldBeforehand) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  EXPECT_FALSE(has(call_with_results({"plan", spec}).out, "disk:")) << "nothing is known yet";
  call_with_results({"run", spec, "--only", "seed=0"});
  const std::string folder = scratch_.records().at(0).file().parent_path();
  std::ofstream(folder + "/weights.safetensors") << "";
  EXPECT_TRUE(has(call_with_results({"plan", spec}).out, "; disk: about 1 MiB of "));
  std::filesystem::resize_file(folder + "/weights.safetensors", uintmax_t{8} << 40);  // which takes no disk
  EXPECT_TRUE(has(call_with_results({"plan", spec}).out, "; disk: about 8388609 MiB of "));
  const Answer answer = call_with_results({"run", spec});
  EXPECT_EQ(answer.code, 0) << "it is a guess, and no reason to refuse";
  EXPECT_TRUE(has(answer.err, "the runs to start will take about 8388609 MiB of disk")) << answer.err;
}

TEST_F(RunAgain, KeysAreOverriddenAndKeptWithTheResults) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  EXPECT_EQ(call_with_results({"run", spec, "steps=7", "strategy=right", "--only", "seed=1"}).code, 0);
  const Record record = scratch_.records().at(0);
  EXPECT_EQ(record.at("spec.steps"), 7);
  EXPECT_EQ(record.strategy_label(), "right");
  EXPECT_TRUE(has(record.at("command"), "steps=7"));
  EXPECT_EQ(read_json(scratch_ / "results/fake/spec.json").at("steps"), 7);
  EXPECT_TRUE(has(call_with_results({"status", "--json"}).out, "\"finished\": 1"));  // of what was asked last
  EXPECT_EQ(call_with_results({"run", spec, "steps=ten"}).code, exit_code::kUsage);
}

TEST_F(RunAgain, AFolderOfResultsStandsForItsSpec) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  call_with_results({"run", spec, "--only", "seed=1"});
  std::filesystem::remove(spec);
  const std::string folder = scratch_ / "results/fake/";
  EXPECT_TRUE(has(call({"plan", folder}).out, "1 of 2 runs to start"));
  EXPECT_TRUE(has(call({"status", folder, "--json"}).out, "\"total\": 2"));
  EXPECT_EQ(call({"run", folder}).code, 0);
  EXPECT_EQ(scratch_.records().size(), 2U);
  EXPECT_TRUE(has(call({"report", folder}).out, "left"));
  EXPECT_TRUE(has(call_with_results({"report", "fake"}).out, "left"));
  EXPECT_TRUE(has(call_with_results({"status", "--json"}).out, "\"total\": 2"));
  const Answer none = call({"report", scratch_ / "results"});
  EXPECT_TRUE(has(none.err, "this folder keeps no spec.json; name a folder in it, such as " +
                                (scratch_ / "results/fake")))
      << none.err;
}

TEST_F(RunAgain, WritesNoSpecOverAFileOfSomebodyElses) {
  const std::string file = scratch_ / "results/fake/spec.json";
  std::filesystem::create_directories(scratch_ / "results/fake");
  std::ofstream(file) << R"({"a": 1})";
  const Answer answer = call_with_results({"run", scratch_.write_spec(test::behaves("ok"))});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, file + " is no spec of bnlab")) << answer.err;
  EXPECT_EQ(read_text(file), R"({"a": 1})");
}

TEST_F(RunAgain, ANewerSpecReplacesTheKeptOneAloud) {
  call_with_results({"run", scratch_.write_spec(test::behaves("ok"))});
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "seed": 3)");
  EXPECT_TRUE(has(call_with_results({"run", spec}).err, "held another spec"));
  EXPECT_EQ(read_json(scratch_ / "results/fake/spec.json").at("seed"), 3);
  EXPECT_EQ(scratch_.records().size(), 2U);
  EXPECT_FALSE(has(call_with_results({"run", spec}).err, "held another spec"));
}

// Each process would train alone, and say that all is well.
TEST_F(RunAgain, HalfAWorldIsRefusedAndBothOfItsCuresHold) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  setenv("WORLD_SIZE", "2", 1);
  const Answer half = call_with_results({"run", spec});
  const Answer own = call_with_results({"run", spec, "seed=1", "--ranks", "1"});
  unsetenv("WORLD_SIZE");
  EXPECT_EQ(half.code, exit_code::kEnvironment);
  EXPECT_TRUE(has(half.err, "half a world is announced: WORLD_SIZE set, RANK missing or empty")) << half.err;
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(scratch_.records().size(), 1U);
  EXPECT_EQ(call_with_results({"run", spec}).code, 0);
}

TEST_F(RunAgain, AMistypedSpecIsAnsweredWithTheNearest) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  const Answer answer = call_with_results({"run", scratch_ / "fakee.json"});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "did you mean " + spec + "?")) << answer.err;
  EXPECT_EQ(call({"run", std::string(5000, 'x')}).code, exit_code::kUsage);
}

TEST_F(RunAgain, FiltersThatNoRunFitsTogetherAreWrongUsage) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  for (const char* command : {"plan", "run"}) {
    const Answer answer = call_with_results({command, spec, "--only", "seed=0", "--only", "seed=1"});
    EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
    EXPECT_TRUE(has(answer.err, "--only seed=0 --only seed=1: no run fits all of these")) << answer.err;
  }
  EXPECT_TRUE(scratch_.records().empty());
}

TEST_F(RunAgain, AFolderOfResultsThatCannotBeOneIsNamed) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  const std::string file = scratch_ / "file";
  std::ofstream(file) << "";
  const Answer answer = call({"run", spec, "--results", file});
  EXPECT_EQ(answer.code, exit_code::kEnvironment);
  EXPECT_TRUE(
      has(answer.err, "--results " + file + ": " + file + " is no folder; name a folder that you may"))
      << answer.err;
  const Answer nameless = call({"run", spec, "--results", ""});
  EXPECT_EQ(nameless.code, exit_code::kUsage);
  EXPECT_TRUE(has(nameless.err, "--results: expected a folder, got an empty name")) << nameless.err;
}

TEST_F(PlanAgain, FindsASpecBelowExperimentsByItsName) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  std::filesystem::create_directories(scratch_ / "experiments/overviews");
  std::filesystem::rename(spec, scratch_ / "experiments/overviews/small.json");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch_ / ".");
  const Answer named = call({"plan", "small"}), mistyped = call({"plan", "smal"});
  std::filesystem::current_path(before);
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_TRUE(has(mistyped.err, "did you mean small?")) << mistyped.err;
}

TEST_F(PlanAgain, ASpecWithoutItsEndingIsAnsweredWithTheFile) {
  const auto spec = scratch_.write_spec(test::behaves("ok"));
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(scratch_ / ".");
  const Answer answer = call({"plan", "fake"});
  std::filesystem::current_path(before);
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "did you mean fake.json?")) << answer.err;
  EXPECT_TRUE(has(answer.err, "experiments/ (looked for in ")) << answer.err;
}

TEST_F(PlanAgain, TellsWhyRunsFailed) {
  const auto spec = scratch_.write_spec(test::behaves("refuse"), R"(, "matrix": {"seed": [0, 1]})");
  call_with_results({"run", spec});
  const std::string out = call_with_results({"plan", spec}).out;
  EXPECT_TRUE(has(out, "2 runs error: this strategy refuses")) << out;
}

TEST_F(PlanAgain, ListsTheIdsThatAreLeftForOtherPrograms) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1, 2]})");
  call_with_results({"run", spec, "--slice", "1/3"});
  const std::string ids = call_with_results({"plan", spec, "--todo"}).out;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), '\n'), 2);
  const std::string first = ids.substr(0, ids.find('\n'));
  EXPECT_EQ(call_with_results({"run", spec, "--only", "run=" + first}).code, 0);
  EXPECT_EQ(scratch_.records().size(), 2U);
}

TEST_F(PlanAgain, HasALineForEachCellOrForEachRun) {
  const auto spec = scratch_.write_spec(
      test::behaves("ok"),
      R"(, "matrix": {"seed": [0, 1, 2], "towers": [1, 2], "strategy": ["left", "right"]})");
  call_with_results({"run", spec, "--only", "seed=0", "--ranks", "1"});
  const std::string cells = call_with_results({"plan", spec}).out;
  EXPECT_TRUE(has(cells, "towers  strategy  placement  threads  runs  state")) << cells;
  EXPECT_TRUE(has(cells, "2       right     1x2-cpu") && has(cells, "3  2 missing, 1 ok\n")) << cells;
  EXPECT_FALSE(has(cells, "-seed1-")) << cells;
  const std::string runs = call_with_results({"plan", spec, "--runs"}).out;
  EXPECT_TRUE(has(runs, "right-2x2-seed1-")) << runs;
}

TEST_F(PlanAgain, TellsOfThroughputsThatNoRunMayClaim) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"strategy": ["left", "right"]},
      "contrasts": [{"metric": "images_per_s", "strategy": "left", "above": "right"}])");
  const std::string note = "1 of 1 declared comparisons is of images_per_s and will not be judged";
  EXPECT_TRUE(has(call_with_results({"plan", spec, "--ranks", "1"}).err, note));
  EXPECT_FALSE(has(call_with_results({"plan", spec, "--ranks", "2"}).err, note));
  EXPECT_TRUE(has(call_with_results({"plan", spec, "--ranks", "2", "--jobs", "2"}).err, note));
}

TEST_F(PlanAgain, MissingWeightsAreWrongUsageAsInRun) {
  const std::string weights = scratch_ / "none.safetensors";
  const auto spec =
      scratch_.write_spec(test::behaves("ok"), R"(, "init_from": {"file": ")" + weights + R"("})");
  for (const char* command : {"plan", "run"}) {
    const Answer answer = call_with_results({command, spec});
    EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
    EXPECT_TRUE(has(answer.err, "init_from.file: " + weights + ": expected a file")) << answer.err;
  }
}

TEST_F(PlanAgain, TellsAllFaultsOfTheDataAsRunDoes) {
  const auto spec = scratch_.write_spec(R"("on_files")");
  std::filesystem::create_directories(scratch_ / "data/files");
  std::ofstream(scratch_ / "data/files/a") << "bad";
  std::ofstream(scratch_ / "data/files/half") << "x";
  for (const char* command : {"plan", "run"}) {
    const Answer answer = call_with_results({command, spec, "--data", scratch_ / "data"});
    EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
    for (const char* part : {"2 faults in the data", "files/a: bad", "files/half: half"})
      EXPECT_TRUE(has(answer.err, part)) << command << ": " << answer.err;
  }
}

// What `run --ranks RANKS` says where a run that is placed otherwise has a checkpoint.
class BesideCheckpoints : public PlanAgain {
 protected:
  std::string told(const std::string& ranks, const std::string& placement) {
    const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "checkpoint_every": 5)");
    std::string id = call_with_results({"plan", spec, "--todo"}).out;
    id.pop_back();
    const std::filesystem::path kept =
        std::filesystem::path(scratch_ / "results") / "fake" / id / placement / "checkpoints";
    std::filesystem::create_directories(kept);
    std::ofstream(kept / "step5.safetensors") << "x";
    return call_with_results({"run", spec, "--ranks", ranks}).err;
  }
};

TEST_F(BesideCheckpoints, OfAnotherNumberOfRanksTheCommandThatGoesOnIsTold) {
  const std::string said = told("1", "2x1-cpu");
  EXPECT_TRUE(has(said, "1 run has checkpoints of 2 ranks (2x1-cpu)")) << said;
  const size_t command = said.find("and goes on with: bnlab run ");
  ASSERT_NE(command, std::string::npos) << said;
  const std::string line = said.substr(command, said.find('\n', command) - command);
  EXPECT_TRUE(line.ends_with(" --ranks 2") && !has(line, "--ranks 1")) << line;
}

TEST_F(BesideCheckpoints, OfAnotherExchangeTheCommandThatGoesOnIsTold) {
  const std::string said = told("2", "2x1-cuda-peers");
  EXPECT_TRUE(has(said, " --ranks 2 --device cuda --exchange peers\n")) << said;
}

TEST_F(PlanAgain, LooksForTheDataWhereItIsToldAFolder) {
  const auto spec = scratch_.write_spec(R"("on_files")");
  EXPECT_EQ(call_with_results({"plan", spec}).code, 0);
  const Answer missing = call_with_results({"plan", spec, "--data", scratch_ / "none"});
  EXPECT_EQ(missing.code, exit_code::kUsage);
  EXPECT_TRUE(has(missing.err, "none/files")) << missing.err;
  EXPECT_EQ(call_with_results({"run", spec, "--data", scratch_ / "none"}).code, exit_code::kUsage);
}

}  // namespace
}  // namespace bnlab
