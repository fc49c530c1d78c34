#include "harness/cli/program.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "harness/support/json.hpp"
#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;
using test::OnResults;

TEST(Program, HelpIsAWordToo) {
  EXPECT_EQ(call({"help"}).out, call({"--help"}).out);
  EXPECT_EQ(call({"help", "run"}).out, call({"run", "--help"}).out);
  EXPECT_EQ(call({"help", "run"}).code, 0);
  const Answer unknown = call({"help", "statsu"});
  EXPECT_EQ(unknown.code, exit_code::kUsage);
  EXPECT_TRUE(has(unknown.err, "did you mean status?")) << unknown.err;
}

TEST(Program, TheVersionGoesToStandardOutput) {
  const Answer answer = call({"--version"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_EQ(answer.out.rfind("bnlab ", 0), 0U);
}

TEST(Program, UnknownNamesAreAnsweredWithTheNearest) {
  const Answer command = call({"statsu"});
  EXPECT_EQ(command.code, exit_code::kUsage);
  EXPECT_TRUE(has(command.err, "unknown command statsu; did you mean status?\n")) << command.err;
  const Answer option = call({"run", "x.json", "--rnaks", "2"});
  EXPECT_EQ(option.code, exit_code::kUsage);
  EXPECT_TRUE(has(option.err, "--rnaks; did you mean --ranks?")) << option.err;
  EXPECT_TRUE(command.out.empty() && option.out.empty());
  const Answer device = call({"run", "x.json", "--device", "gpu"});
  EXPECT_EQ(device.code, exit_code::kUsage);
  EXPECT_TRUE(has(device.err, "--device: expected cpu or cuda, got gpu; did you mean cuda?\n")) << device.err;
  const Answer format = call({"report", "x.json", "--format", "jsn"});
  EXPECT_TRUE(has(format.err, "got jsn; did you mean json?\n")) << format.err;
}

TEST(Program, AWordThatIsTheNameOfACommandIsAnArgumentToo) {
  const Answer answer = call({"explain", "report"});
  EXPECT_TRUE(has(answer.err, "there is no report to explain; known: ")) << answer.err;
}

TEST(Program, TwoCommandsHaveNoPlaceInHelpTogether) {
  int (*const act)(const std::string&) = nullptr;
  EXPECT_THROW(Command("other", {Heading::start_here, 1}, "", "", act), std::logic_error);
}

TEST(Program, WrongUsageIsExitCodeTwo) {
  EXPECT_EQ(call({}).code, exit_code::kUsage);
  EXPECT_EQ(call({"run"}).code, exit_code::kUsage);
  const Answer no_spec = call({"run", "no_such.json"});
  EXPECT_EQ(no_spec.code, exit_code::kUsage);
  EXPECT_TRUE(has(no_spec.err, "; bnlab init FILE begins one\n")) << no_spec.err;
  EXPECT_EQ(call({"run", "x.json", "--ranks", "zero"}).code, exit_code::kUsage);
  const Answer no_jobs = call({"run", "x.json", "--jobs", "0"});
  EXPECT_EQ(no_jobs.code, exit_code::kUsage);
  EXPECT_LT(no_jobs.err.size(), 120u) << no_jobs.err;  // no range of hundreds of digits
  EXPECT_TRUE(has(no_jobs.err, "expected auto or a number from 1 to 4096")) << no_jobs.err;
  EXPECT_TRUE(has(no_jobs.err, "\nbnlab run --help shows how it is used\n")) << no_jobs.err;
  EXPECT_EQ(call({"list", "nothing"}).code, exit_code::kUsage);
  EXPECT_EQ(call({"status", "no_such"}).code, exit_code::kUsage);
}

TEST(Program, FilesThatAreNotThereAreWrongUsage) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(test::behaves("ok")), none = scratch / "none";
  const std::vector<std::vector<std::string>> calls = {{"list", "strategies", "--into", none},
                                                       {"report", spec, "--into", none},
                                                       {"check", none},
                                                       {"confirm", spec, none},
                                                       {"cost", spec, "--probe", none},
                                                       {"cost", "--validate", none}};
  for (const std::vector<std::string>& words : calls) {
    const Answer answer = call(words);
    EXPECT_EQ(answer.code, exit_code::kUsage) << words[0] << ": " << answer.err;
  }
}

TEST(Program, OptionsWithoutEffectAreWrongUsage) {
  const test::Scratch scratch;
  const std::string spec = scratch.write_spec(test::behaves("ok")), page = scratch / "page.md";
  const std::vector<std::vector<std::string>> calls = {{"list", "strategies", "--into", page, "--json"},
                                                       {"list", "strategies", "--format", "json", "--long"},
                                                       {"plan", spec, "--json", "--todo"},
                                                       {"plan", spec, "--runs", "--todo"},
                                                       {"plan", spec, "--json", "--runs"}};
  for (const std::vector<std::string>& words : calls)
    EXPECT_EQ(call(words).code, exit_code::kUsage) << testing::PrintToString(words);
}

TEST(Program, NumbersOutOfRangeAreToldInAFewWords) {
  const Answer steal = call({"run", "x.json", "--steal-after", "0"});
  EXPECT_EQ(steal.code, exit_code::kUsage);
  EXPECT_TRUE(has(steal.err, "--steal-after: expected a number above 0, got 0\n")) << steal.err;
  const Answer margin = call({"diagnose", "x", "--margin", "-1"});
  EXPECT_TRUE(has(margin.err, "--margin: expected 0 or a number above it, got -1\n")) << margin.err;
  const Answer samples = call({"predict", "x", "--out", "y", "--samples", "x"});
  EXPECT_TRUE(has(samples.err, "expected numbers from 0 on, such as 0,17,230, got x")) << samples.err;
}

TEST(Program, ALayerCaseThatCannotBeDoneIsExitCodeTwo) {
  const Answer done = call({"layer", "case.json", "-", "--ranks", "2"});
  EXPECT_EQ(done.code, exit_code::kOk);
  EXPECT_EQ(done.out, "case.json on 2 x cpu\n- on 2 x cpu\n");
  EXPECT_EQ(call({"layer", "refused.json"}).code, exit_code::kUsage);
  EXPECT_EQ(call({"layer", "case.json", "--device", "tpu"}).code, exit_code::kUsage);
  EXPECT_EQ(call({"layer"}).code, exit_code::kUsage);
}

TEST(Program, AMistakeInTheSpecIsExitCodeTwo) {
  const test::Scratch scratch;
  const Answer answer = call({"run", scratch.write_spec(test::behaves("ok"), R"(, "sed": 1)")});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "seed")) << answer.err;
}

TEST(ListCommand, ShowsALinePerEntry) {
  const Answer text = call({"list", "strategies"});
  EXPECT_EQ(text.code, 0);
  EXPECT_EQ(text.out,
            "name   what it does      exchanges per site and step\n"
            "-----  ----------------  ---------------------------\n"
            "left   one strategy\n"
            "right  another strategy  1 forward\n");
  EXPECT_EQ(call({"list", "models"}).out, "name  what it does\n----  ------------\nfake  no network\n");
  EXPECT_EQ(call({"list", "strategy"}).out, text.out);
  EXPECT_TRUE(has(call({"list", "startegies"}).err, "; did you mean strategies?"));
}

TEST(ListCommand, ShowsEverythingOfEachOnDemand) {
  const std::string text = call({"list", "strategies", "--long"}).out;
  EXPECT_TRUE(
      has(text,
          "left\n    one strategy\n    parameters:\n        weight = 1\n            a number: of nothing\n"))
      << text;
  EXPECT_TRUE(has(text, "    computes:\n        y = x\n        dx = dy\n")) << text;
  const Json json = Json::parse(call({"list", "strategies", "--json"}).out);
  EXPECT_EQ(json.at(1).at("name"), "right");
  EXPECT_EQ(json.at(1).at("source"), "a discussion");
  EXPECT_EQ(json.at(1).at("formula"), Json({"y = x", "dx = dy"}));
  EXPECT_EQ(json.at(0).at("parameters").at(0).at("expected"), "a number");
}

TEST(ListCommand, WritesItsMarkdownBetweenTheMarkersOfAFile) {
  const test::Scratch scratch;
  std::ofstream(scratch / "page.md") << "by hand\n<!-- table:strategies -->\nold\n<!-- end -->\nby hand\n";
  EXPECT_EQ(call({"list", "strategies", "--format", "markdown", "--into", scratch / "page.md"}).code, 0);
  std::ifstream in(scratch / "page.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(page,
            "by hand\n<!-- table:strategies -->\n"
            "| name | what it does | exchanges per site and step | use it | source |\n|---|---|---|---|---|\n"
            "| `left` | one strategy |  |  |  |\n"
            "| `right` | another strategy | 1 forward | never | a discussion |\n"
            "\nLimits, and parameters with their defaults:\n"
            "\n- `left`\n  - `weight` (`1`): a number: of nothing\n"
            "\n- `right`: all \\| of it\n<!-- end -->\nby hand\n");
}

TEST(ExplainCommand, ShowsAStrategyAndWhatItsStepExchanges) {
  const Answer answer = call({"explain", "right", "--model", "fake", "--towers", "4"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(
      answer.out,
      "right\n"
      "    another strategy\n"
      "    computes:\n"
      "        y = x\n"
      "        dx = dy\n"
      "    exchanges per site and step: 1 forward\n"
      "    use it: never\n"
      "    limits: all | of it\n"
      "    source: a discussion\n"
      "    one training step of fake, 4 towers x 2 images of 64x64, on 2 ranks, 3 norm sites, by one rank:\n"
      "        statistics: 6 collectives, 400 bytes\n"
      "        kernels of a norm site with its ReLU on a GPU, collectives apart: about 2 forward, 1 "
      "backward\n"
      "        gradients: all parameters once, 4096 bytes\n"
      "        counted by nobody\n"
      "        fewest values per channel at norm: 4096 of an image, 8192 of a tower\n");
  const Json json = Json::parse(call({"explain", "right", "--model", "fake", "--json"}).out);
  EXPECT_EQ(json.at("family"), "strategy");
  EXPECT_EQ(json.at("step").at("exchanges").at("statistics").at("bytes"), 800);
  EXPECT_EQ(json.at("step").at("site_kernels").at("forward"), 2);
  EXPECT_EQ(json.at("step").at("notes"), Json{"counted by nobody"});
  EXPECT_EQ(json.at("step").at("poorest").at("values_per_image"), 4096);
}

TEST(ExplainCommand, TakesParametersAsASpecDoes) {
  const Answer answer = call({"explain", R"({"name": "left", "weight": 0.5})", "--model", "fake"});
  EXPECT_TRUE(has(answer.out, "        weight = 0.5  (default 1)\n")) << answer.out << answer.err;
  const Answer wrong = call({"explain", R"({"name": "left", "wieght": 0.5})", "--model", "fake"});
  EXPECT_EQ(wrong.code, exit_code::kUsage);
  EXPECT_TRUE(has(wrong.err, "strategy.wieght: unknown key of strategy \"left\"; did you mean \"weight\"?"))
      << wrong.err;
  const Answer by_label = call({"explain", "left(weight=0.5)", "--model", "fake"});
  EXPECT_EQ(by_label.out, answer.out) << by_label.err;
  EXPECT_EQ(call({"explain", R"({"weight": 0.5})"}).code, exit_code::kUsage);
  EXPECT_EQ(call({"explain", R"({"name": )"}).code, exit_code::kUsage);
}

TEST(ExplainCommand, ShowsWhatTheStrategyRefuses) {
  const Answer answer = call({"explain", "left", "--model", "fake", "--towers", "3"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_TRUE(has(answer.out, "        refused: towers: the ranks must divide them\n")) << answer.out;
}

TEST(ExplainCommand, KnowsTheOtherFamiliesToo) {
  EXPECT_TRUE(has(call({"explain", "sgd"}).out, "        lr = 0.1\n"));
  EXPECT_EQ(call({"explain", "fake"}).out, "fake\n    no network\n");
  EXPECT_TRUE(has(call({"explain", "files"}).out, "        root = (needed)\n"));
  EXPECT_EQ(call({"explain", R"({"name": "files"})"}).code, exit_code::kUsage);
}

TEST(ExplainCommand, AnswersAnUnknownNameWithTheNearest) {
  const Answer answer = call({"explain", "rihgt"});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "did you mean \"right\"?")) << answer.err;
  EXPECT_EQ(call({"explain", "left", "--model", "fake", "--size", "64"}).code, exit_code::kUsage);
  EXPECT_EQ(call({"explain", "left", "--model", "no_such"}).code, exit_code::kUsage);
}

using RunCommand = OnResults;

TEST_F(RunCommand, PrintsTheTableToStandardOutputAndTalksElsewhere) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1]})");
  const Answer answer = call_with_results({"run", spec, "--device", "cpu"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.out, "left")) << answer.out;
  EXPECT_TRUE(has(answer.err, "records: " + (scratch_ / "results") + "/fake")) << answer.err;
  EXPECT_TRUE(has(answer.err, "scripts/plot.sh " + (scratch_ / "results") + "/fake")) << answer.err;
}

TEST_F(RunCommand, AFailedRunIsExitCodeOneAndTheWayToRedoItIsShown) {
  const Answer answer =
      call_with_results({"run", scratch_.write_spec(test::behaves("refuse")), "--ranks", "1"});
  EXPECT_EQ(answer.code, exit_code::kFailed);
  EXPECT_TRUE(has(answer.err, "--redo failed")) << answer.err;
}

TEST_F(RunCommand, OnlyMayBeRepeatedAndTakesOneArgument) {
  const auto spec = scratch_.write_spec(test::behaves("ok"),
                                        R"(, "matrix": {"seed": [0, 1], "strategy": ["left", "right"]})");
  const Answer answer =
      call_with_results({"run", "--only", "seed=0", "--only", "strategy=left", spec, "--ranks", "1"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(scratch_.records().size(), 1U);
}

TEST_F(RunCommand, TheRecordedCommandCanBeTypedAgain) {
  const auto spec =
      scratch_.write_spec(test::behaves("ok"), R"(, "strategy": {"name": "left", "weight": 0.5})");
  call_with_results({"run", spec, "--only", "strategy=left(weight=0.5)", "--ranks", "1"});
  ASSERT_EQ(scratch_.records().size(), 1U);
  EXPECT_EQ(scratch_.records()[0].at("command"),
            "bnlab run " + spec + " --only 'strategy=left(weight=0.5)' --ranks 1 --results " +
                (scratch_ / "results"));
}

using PlanCommand = OnResults;

TEST_F(PlanCommand, TellsWhatIsDoneWhatIsExcludedAndByWhichRule) {
  const auto spec = scratch_.write_spec(
      test::behaves("ok"),
      R"(, "matrix": {"seed": [0, 1], "strategy": ["left", "right"]}, "exclude": [{"strategy.name": "right", "seed": 1}])");
  const Answer before = call_with_results({"plan", spec});
  EXPECT_EQ(before.code, 0) << before.err;
  EXPECT_TRUE(has(before.out, "3 of 3 runs to start; expected time: unknown")) << before.out;
  EXPECT_TRUE(has(before.out, R"(left out by exclude[0] {"strategy.name":"right","seed":1}: 1 run)"))
      << before.out;
  call_with_results({"run", spec, "--only", "seed=0", "--only", "strategy=left"});
  const Json plan = Json::parse(call_with_results({"plan", spec, "--json"}).out);
  EXPECT_EQ(plan.at("to_start"), 2);
  EXPECT_EQ(plan.at("runs").at(0).at("state"), "ok");
  EXPECT_EQ(plan.at("runs").at(1).at("state"), "missing");
  EXPECT_TRUE(plan.at("estimated_time_s").is_number());
  EXPECT_EQ(plan.at("peak_memory_bytes"), 1 << 20);
}

using StatusCommand = OnResults;

TEST_F(StatusCommand, CountsTheRunsOfASpec) {
  const auto spec = scratch_.write_spec(test::behaves("ok"), R"(, "matrix": {"seed": [0, 1, 2]})");
  call_with_results({"run", spec, "--only", "seed=1"});
  const Json status = Json::parse(call_with_results({"status", spec, "--json"}).out);
  EXPECT_TRUE(has(status.dump(), "\"finished\":1")) << status.dump(2);
  EXPECT_TRUE(has(call_with_results({"status"}).out, "fake"));
}

using DoctorCommand = OnResults;

TEST_F(DoctorCommand, TellsWhatIsThere) {
  const Answer answer = call_with_results({"doctor"});
  EXPECT_EQ(answer.code, 0) << answer.out;
  EXPECT_TRUE(has(answer.out, "bnlab starts the ranks itself")) << answer.out;
}

TEST_F(DoctorCommand, EveryProblemHasACure) {
  setenv("RANK", "0", 1);
  const Answer answer = call_with_results({"doctor", "--data", scratch_ / "none", "--json"});
  unsetenv("RANK");
  EXPECT_EQ(answer.code, exit_code::kEnvironment);
  int problems = 0;
  for (const Json& finding : Json::parse(answer.out)) {
    EXPECT_EQ(finding.at("problem").is_null(), finding.at("cure").is_null()) << finding;
    problems += finding.at("problem").is_null() ? 0 : 1;
  }
  EXPECT_EQ(problems, 2);  // WORLD_SIZE is missing, and so is the data folder
}

class EvaluateCommand : public OnResults {
 protected:
  // A run and its weights, as the made-up ranks of this program leave them.
  std::string weights_of(const std::string& strategy) {
    const std::string more = R"(, "populations": ["saved", "batch"], "strategy": ")" + strategy + "\"";
    spec_ = scratch_.write_spec(test::behaves("ok"), more);
    call_with_results({"run", spec_, "--device", "cpu", "--ranks", "1"});
    const std::string file = scratch_.records().back().file().parent_path() / kWeightsFile;
    std::ofstream(file) << "weights";
    return file;
  }
  std::string spec_;
};

TEST_F(EvaluateCommand, PrintsTheMetricsUnderTheRunsPopulationsOrThoseAskedFor) {
  const std::string weights = weights_of("left");
  const Answer own = call({"evaluate", weights});
  EXPECT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(own.out,
            "population  mean_iou\n----------  --------\nsaved         0.5000\nbatch         0.5000\n");
  const Answer asked =
      call({"evaluate", weights, "--population", "precise,tower:1", "--ranks", "2", "--json"});
  const Json json = Json::parse(asked.out);
  EXPECT_EQ(json.at("run_id"), scratch_.records().back().run_id());
  EXPECT_EQ(json.at("metrics").size(), 2u);
  EXPECT_EQ(json.at("metrics").at("tower:1"), Json({{"mean_iou", 0.5}, {"class_iou", {0.5, 2}}}));
}

TEST_F(EvaluateCommand, RanksThatDoNotFitAreWrongUsage) {
  const Answer answer = call({"evaluate", weights_of("left"), "--ranks", "3"});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "the ranks must divide them")) << answer.err;
}

TEST_F(EvaluateCommand, SaysWhereSavedIsAllThereIs) {
  const Answer answer = call({"evaluate", weights_of("right"), "--population", "mean"});
  EXPECT_TRUE(has(answer.err, "right has no running statistics: mean is the same as saved")) << answer.err;
  EXPECT_TRUE(has(answer.out, "saved")) << answer.out;
}

TEST_F(EvaluateCommand, KnowsTheRunByTheRecordOrByASpec) {
  const std::string weights = weights_of("left");
  const Answer population = call({"evaluate", weights, "--population", "tower:2"});
  EXPECT_EQ(population.code, exit_code::kUsage);
  EXPECT_TRUE(has(population.err, "expected a tower from 0 to 1")) << population.err;
  EXPECT_EQ(call({"evaluate", scratch_ / "none.safetensors"}).code, exit_code::kUsage);
  const std::string elsewhere = scratch_ / "w.safetensors";
  std::filesystem::copy_file(weights, elsewhere);
  const Answer unknown = call({"evaluate", elsewhere});
  EXPECT_EQ(unknown.code, exit_code::kUsage);
  EXPECT_TRUE(has(unknown.err, "use --spec")) << unknown.err;
  EXPECT_EQ(call({"evaluate", elsewhere, "--spec", spec_}).code, 0);
}

using DiagnoseCommand = EvaluateCommand;

TEST_F(DiagnoseCommand, PrintsTheSentenceAndTheNumbers) {
  const std::string weights = weights_of("left");
  const Answer answer = call({"diagnose", weights});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out.rfind("A small batch.\n", 0), 0U) << answer.out;
  EXPECT_TRUE(has(answer.out, "test images, the batch's own")) << answer.out;
  const Json json = Json::parse(call({"diagnose", weights, "--json"}).out);
  EXPECT_EQ(json.at("causes"), Json({"small_batch"}));
  EXPECT_EQ(json.at("batch"), 0.5);
  EXPECT_TRUE(json.at("ema").is_null());
  EXPECT_TRUE(has(call({"diagnose", weights, "--margin", "0.3"}).out, "None."));
}

TEST_F(DiagnoseCommand, TakesTheFolderOfARunAndTellsWhereItsWeightsAreNot) {
  const std::filesystem::path weights = weights_of("left");
  const std::filesystem::path run = weights.parent_path().parent_path();
  EXPECT_EQ(call({"diagnose", run.string()}).code, 0);
  std::filesystem::remove(weights);
  const Answer answer = call({"diagnose", run.string()});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  const std::string id = run.filename().string();
  EXPECT_TRUE(has(answer.err, "make the run again: bnlab run ")) << answer.err;
  EXPECT_TRUE(has(answer.err, " --only run=" + id + " --redo " + id + ", and name its folder there"))
      << answer.err;
}

TEST_F(DiagnoseCommand, ACheckpointOfPyTorchIsAnsweredWithWhatConvertsIt) {
  const Answer answer = call({"diagnose", scratch_ / "resnet.pth", "--spec", spec_});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "-m bnlab.convert " + std::string(scratch_ / "resnet.pth"))) << answer.err;
}

TEST_F(EvaluateCommand, SaysWhatTheFileDoesNotHold) {
  const Answer answer = call({"evaluate", weights_of("left"), "--population", "ema_precise"});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "the file holds the weights of the last step, not their average"))
      << answer.err;
}

}  // namespace
}  // namespace bnlab
