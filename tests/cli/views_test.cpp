// The commands that show what is in a results folder.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "harness/store/run_folder.hpp"
#include "harness/support/json.hpp"
#include "tests/cli/called.hpp"
#include "tests/launch/scratch.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::call;
using test::has;

class Views : public ::testing::Test {
 protected:
  Answer call_with_results(std::vector<std::string> words) {
    words.insert(words.end(), {"--results", scratch_ / "results"});
    return call(words);
  }
  // Two seeds of a strategy in results/fake.
  std::string run(const std::string& behaviour) {
    const auto spec = scratch_.write_spec(test::behaves(behaviour), R"(, "matrix": {"seed": [0, 1]})");
    call_with_results({"run", spec, "--device", "cpu", "--ranks", "1"});
    return spec;
  }
  std::string folder() const { return scratch_ / "results/fake"; }

  test::Scratch scratch_;
};

TEST_F(Views, StatusAndReportSayWhyRunsFailed) {
  const std::string spec = run("refuse");
  for (const char* command : {"status", "report"}) {
    const Answer answer = call_with_results({command, spec});
    EXPECT_TRUE(has(answer.out, "Failed runs:\n")) << answer.out;
    EXPECT_TRUE(has(answer.out, "2 error: ")) << answer.out;
  }
  EXPECT_TRUE(has(call_with_results({"report", spec}).out, "0 of 2 runs ended ok, 2 failed."));
  const Json status = Json::parse(call_with_results({"status", spec, "--json"}).out);
  EXPECT_EQ(status.at(0).at("ok"), 0);
  EXPECT_EQ(status.at(0).at("failures").at(0).at("runs"), 2);
}

TEST_F(Views, ReportTakesTheKeysThatRunWasGivenAndTellsOfRunsWithOthers) {
  const std::string spec = run("ok");
  EXPECT_EQ(call_with_results({"run", spec, "--ranks", "1", "steps=3", "--only", "seed=0"}).code, 0);
  const Answer plain = call_with_results({"report", spec});
  EXPECT_TRUE(has(plain.err, "note: 1 finished run that the spec does not ask for")) << plain.err;
  const Answer shorter = call_with_results({"report", spec, "steps=3"});
  EXPECT_TRUE(has(shorter.out, "1 of 2 runs are there")) << shorter.out;
  EXPECT_TRUE(has(call_with_results({"plan", spec}).err, "holds 1 finished run that the spec")) << plain.err;
}

TEST_F(Views, ReportWritesCsvAndAPage) {
  const std::string spec = run("ok");
  const Answer csv = call_with_results({"report", spec, "--format", "csv"});
  EXPECT_EQ(csv.out.rfind("experiment,run_id,seed,strategy,outcome,", 0), 0u) << csv.out;
  const Answer page = call_with_results({"report", spec, "--format", "html"});
  EXPECT_EQ(page.out.rfind("<!DOCTYPE html>", 0), 0u) << page.out;
  EXPECT_TRUE(has(page.out, "\"commands\":\"bnlab run")) << page.out;
}

// A name of a folder, and texts of records, that would clear the screen or name the window.
TEST_F(Views, WhatOthersWroteDoesNothingToATerminal) {
  const std::string spec = run("refuse");
  const auto runs = run_folders(scratch_ / "results", "fake");
  Json told = read_json(runs.at(0) / kRecordFile), killed = read_json(runs.at(1) / kRecordFile);
  told["outcome"]["message"] = "clear \033[2J it";
  killed["outcome"]["message"] = nullptr;
  killed["outcome"]["signal"] = "SIG\033[2J";
  killed["code"]["git"] = "\033[2J\177";
  write_json(runs[0] / kRecordFile, told);
  write_json(runs[1] / kRecordFile, killed);
  const std::filesystem::path damaged = folder() + "/a\033]0;b\007/1x2-cpu";
  std::filesystem::create_directories(damaged);
  std::ofstream(damaged / kRecordFile) << "{";
  const std::string results = scratch_ / "results";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status", folder()},
                                                {"report", folder()},
                                                {"report", folder(), "--format", "csv"},
                                                {"report", folder(), "--format", "json"},
                                                {"watch", results, "--once"},
                                                {"compare", folder(), folder()},
                                                {"plan", spec, "--results", results}}) {
    const Answer answer = call(words);
    const std::string all = answer.out + answer.err;
    EXPECT_FALSE(has(all, "\033") || has(all, "\007") || has(all, "\177")) << words.front() << all;
    EXPECT_TRUE(has(all, "\\u001b")) << words.front() << all;
  }
}

TEST_F(Views, CompareEndsWithOneWhereSomethingGotWorse) {
  run("ok");
  const std::string copy = scratch_ / "copy";
  std::filesystem::copy(folder(), copy, std::filesystem::copy_options::recursive);
  const Answer same = call({"compare", folder(), copy});
  EXPECT_EQ(same.code, exit_code::kOk) << same.err;
  EXPECT_TRUE(has(same.out, "No regression beyond the intervals.")) << same.out;
  for (const auto& run : run_folders(scratch_ / ".", "copy")) {
    Json record = read_json(run / kRecordFile);
    record["outcome"] = {{"status", "crashed"}, {"message", "it fell over"}};
    write_json(run / kRecordFile, record);
  }
  const Answer worse = call({"compare", folder() + "/", copy, "--only", "worse"});
  EXPECT_EQ(worse.code, exit_code::kFailed) << worse.out;
  EXPECT_TRUE(has(worse.out, "2 crashed: it fell over")) << worse.out;
  EXPECT_EQ(Json::parse(call({"compare", folder(), copy, "--format", "json"}).out).at("regressions"), 2);
}

TEST_F(Views, CompareGivesNoVerdictOnUnlikeExperiments) {
  run("ok");
  const std::string copy = scratch_ / "copy";
  std::filesystem::copy(folder(), copy, std::filesystem::copy_options::recursive);
  for (const auto& run : run_folders(scratch_ / ".", "copy")) {
    Json record = read_json(run / kRecordFile);
    record["spec"]["steps"] = 4000;
    write_json(run / kRecordFile, record);
  }
  const Answer answer = call({"compare", folder(), copy});
  EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
  EXPECT_TRUE(has(answer.out, "differs in the specs") && has(answer.out, "4000")) << answer.out;
  EXPECT_TRUE(has(answer.out, "No verdict: ") && !has(answer.out, "No regression")) << answer.out;
}

TEST_F(Views, CompareRefusesWhatHasNothingInCommon) {
  run("ok");
  const Answer answer = call({"compare", folder(), scratch_ / "none"});
  EXPECT_EQ(answer.code, exit_code::kUsage);
  EXPECT_TRUE(has(answer.err, "no records there; expected a folder RESULTS/EXPERIMENT")) << answer.err;
}

TEST_F(Views, WatchShowsThePageOnce) {
  run("ok");
  const std::string begun = folder() + "/left-2x2-seed7-0123456789ab/1x2-cpu";
  std::filesystem::create_directories(begun);
  std::ofstream(begun + "/metrics.jsonl") << R"({"kind":"train","step":5,"loss":0.5,"time_s":1})"
                                          << "\n";
  for (const std::string& watched : {folder(), scratch_ / "results"}) {
    const Answer answer = call({"watch", watched, "--once"});
    EXPECT_EQ(answer.code, 0) << answer.err;
    EXPECT_TRUE(has(answer.out, "left-2x2-seed7-0123456789ab")) << answer.out;
    EXPECT_TRUE(has(answer.out, "2 ok")) << answer.out;
  }
  EXPECT_EQ(call({"watch", scratch_ / "none", "--once"}).code, exit_code::kUsage);
}

TEST_F(Views, ExportWritesEventFiles) {
  run("ok");
  for (const auto& run : run_folders(scratch_ / "results", "fake"))
    std::ofstream(run / kMetricsFile) << "{}\n";
  const Answer answer = call({"export", folder(), "--tensorboard", scratch_ / "curves"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.err, "event files of 2 runs")) << answer.err;
  EXPECT_EQ(call({"export", scratch_ / "none", "--tensorboard", scratch_ / "x"}).code, exit_code::kUsage);
}

TEST_F(Views, MergeRefusesRunsOfAnotherExperiment) {
  run("ok");
  const std::string other = scratch_ / "other/tradeoff";
  std::filesystem::create_directories(other);
  std::filesystem::copy(folder(), other, std::filesystem::copy_options::recursive);
  std::filesystem::remove(other + "/" + kSpecFile);
  for (const auto& run : run_folders(scratch_ / "other", "tradeoff")) {
    Json record = read_json(run / kRecordFile);
    record["experiment"] = "tradeoff";
    write_json(run / kRecordFile, record);
  }
  const Answer answer = call({"merge", folder(), other});
  EXPECT_EQ(answer.code, exit_code::kUsage) << answer.out;
  EXPECT_TRUE(has(answer.err, " are of fake, those in " + other + " of tradeoff")) << answer.err;
}

TEST_F(Views, StatusRefusesWhatIsNoFolderOfResults) {
  const std::string spec = run("ok");
  for (const std::string& results : {spec, scratch_ / "none"}) {
    const Answer answer = call({"status", "--results", results});
    EXPECT_EQ(answer.code, exit_code::kUsage) << answer.err;
    EXPECT_TRUE(has(answer.err, "--results " + results + ": no runs there")) << answer.err;
  }
  const Answer own = call({"status", "--results", folder()});
  EXPECT_EQ(own.code, exit_code::kUsage) << own.err;
  EXPECT_TRUE(has(own.err, "bnlab status " + folder())) << own.err;
  std::filesystem::create_directory(scratch_ / "empty");
  EXPECT_EQ(call({"status", "--results", scratch_ / "empty"}).code, exit_code::kOk);
}

TEST_F(Views, ADamagedSpecLeavesTheOtherExperimentsTheirStatus) {
  run("ok");
  std::filesystem::copy(folder(), scratch_ / "results/gone", std::filesystem::copy_options::recursive);
  std::ofstream(scratch_ / "results/gone/spec.json") << "{";
  for (const std::vector<std::string>& words : {std::vector<std::string>{"status"}, {"watch", "--once"}}) {
    const Answer answer = call_with_results(words);
    EXPECT_EQ(answer.code, exit_code::kFailed) << answer.err;
    EXPECT_TRUE(has(answer.out, "fake") && has(answer.out, "2 ok")) << answer.out;
    EXPECT_TRUE(has(answer.out, "damaged: " + (scratch_ / "results/gone/spec.json"))) << answer.out;
  }
}

TEST_F(Views, ADamagedRecordLeavesTheOtherRunsTheirCurves) {
  run("ok");
  const auto runs = run_folders(scratch_ / "results", "fake");
  for (const auto& run : runs)
    std::ofstream(run / kMetricsFile) << R"({"kind":"train","step":1,"loss":1})"
                                      << "\n";
  std::ofstream(runs.at(0) / kRecordFile) << "{";
  const Answer answer = call({"export", folder(), "--tensorboard", scratch_ / "curves"});
  EXPECT_EQ(answer.code, exit_code::kFailed) << answer.err;
  EXPECT_TRUE(has(answer.err, "event files of 1 runs")) << answer.err;
  EXPECT_TRUE(has(answer.err, "left out: " + (runs.at(0) / kRecordFile).string() + " is damaged: "))
      << answer.err;
  EXPECT_FALSE(has(answer.err, "json.exception")) << answer.err;
}

TEST_F(Views, DamagedCurvesLeaveTheOthersTheirPage) {
  const std::string spec = run("ok"), page = scratch_ / "page.html";
  const auto runs = run_folders(scratch_ / "results", "fake");
  std::ofstream(runs.at(0) / kMetricsFile) << "{\"kind\":\"train\",\"step\":1,\"loss\":1}\nnot JSON\n";
  const Answer answer = call_with_results({"watch", spec, "--once", "--html", page});
  EXPECT_EQ(answer.code, exit_code::kFailed) << answer.err;
  EXPECT_TRUE(
      has(answer.err, "damaged: " + (runs.at(0) / kMetricsFile).string() + ":2: expected a JSON object"))
      << answer.err;
  EXPECT_TRUE(has(read_text(page), "\"asked\":2,\"finished\":2,\"ok\":2")) << read_text(page);
}

TEST_F(Views, APackedFolderIsCheckedAndReadLikeTheOneThatItIsOf) {
  run("ok");
  const std::string packed = scratch_ / "fake";
  EXPECT_EQ(call({"pack", folder(), packed}).code, 0);
  EXPECT_TRUE(has(call({"check", packed}).out, " 2 records, 0 problems"));
  EXPECT_EQ(call({"check", folder()}).code, exit_code::kFailed) << "no manifest there";
  EXPECT_EQ(call({"report", packed, "--format", "csv"}).out,
            call({"report", folder(), "--format", "csv"}).out);
  const auto file = run_folders(scratch_ / "results", "fake").at(0) / kRecordFile;
  Json record = read_json(file);
  record["spec"]["steps"] = 11;
  write_json(file, record);
  EXPECT_EQ(call({"pack", folder(), packed + "2"}).code, 0);
  const Answer changed = call({"check", packed + "2"});
  EXPECT_EQ(changed.code, exit_code::kFailed);
  EXPECT_TRUE(has(changed.out, "runs.jsonl:1: its spec is that of the run left-2x2-seed")) << changed.out;
  std::ofstream(packed + "/runs.jsonl") << "{";
  const std::string damaged = call({"check", packed}).out;
  EXPECT_TRUE(has(damaged, "runs.jsonl was changed\nruns.jsonl:1 is damaged: no JSON")) << damaged;
}

TEST_F(Views, AnArchiveInPlaceOfAFolderIsAnsweredByTheLineOfTar) {
  run("ok");
  const std::string archive = scratch_ / "fake.tar";
  const Answer packed = call({"pack", folder(), archive});
  EXPECT_EQ(packed.code, exit_code::kUsage);
  EXPECT_TRUE(has(packed.err, "expected the name of a folder, such as " + (scratch_ / "fake") + "; "))
      << packed.err;
  EXPECT_TRUE(has(packed.err, "-czf " + archive + ".gz fake\n")) << packed.err;
  std::ofstream(archive) << "ustar";
  const Answer checked = call({"check", archive});
  EXPECT_EQ(checked.code, exit_code::kUsage);
  EXPECT_TRUE(has(checked.err, "tar -xf " + archive)) << checked.err;
}

TEST_F(Views, CheckTellsWhatAGpuCheckFound) {
  run("ok");
  std::ofstream(folder() + "/check.json") << "{}";
  std::ofstream(folder() + "/table.txt") << "machine    NVIDIA H100\n\n"
                                            "first      FAILED     one rank: differs\x1b[2J\n"
                                            "first      ok         CUDA graphs\n";
  const std::string record = run_folders(scratch_ / "results", "fake").at(0) / kRecordFile;
  Json older = read_json(record);
  older["code"]["numerics"] = {{"base", "0000000000000000"}};
  write_json(record, older);
  EXPECT_EQ(call({"pack", folder(), scratch_ / "gpu"}).code, 0);
  const Answer answer = call({"check", scratch_ / "gpu"});
  EXPECT_EQ(answer.code, 0) << answer.out << answer.err;
  for (const char* part : {"machine    NVIDIA H100\n", "first      FAILED     one rank: differs\\u001b[2J\n",
                           "1 verdicts ok\n", "1 records stale: what computes it", " 0 problems"}) {
    EXPECT_TRUE(has(answer.out, part)) << part << answer.out;
  }
}

TEST_F(Views, InitWritesASpecAndReplacesNone) {
  const std::string file = scratch_ / "mine.json";
  EXPECT_EQ(call({"init", file}).code, 0);
  const std::string text = read_text(file);
  EXPECT_TRUE(has(text, "  // data, loss and metric; bnlab list tasks\n  \"task\": ")) << text;
  EXPECT_TRUE(has(text, "\"left\",  // one strategy")) << text;
  EXPECT_TRUE(has(text, "\"right\"  // another strategy")) << text;
  const Answer again = call({"init", file});
  EXPECT_EQ(again.code, exit_code::kUsage);
  EXPECT_TRUE(has(again.err, "--force replaces it")) << again.err;
  const Answer spaced = call({"init", scratch_ / "a b.json"});
  EXPECT_EQ(spaced.code, exit_code::kUsage);
  EXPECT_TRUE(has(spaced.err, "begins with neither - nor .")) << spaced.err;
}

// Whether a program of this machine accepts a text as a file; nothing where there is no such program.
std::optional<bool> accepted(const std::string& program, const std::string& options,
                             const std::string& text) {
  if (std::system(("command -v " + program + " >/dev/null 2>&1").c_str()) != 0) return std::nullopt;
  const test::Scratch scratch;
  std::ofstream(scratch / "file") << text;
  return std::system((program + " " + options + " " + (scratch / "file") + " >/dev/null").c_str()) == 0;
}

TEST(Completion, KnowsCommandsOptionsAndNamesInEveryShell) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Answer answer = call({"completion", shell});
    EXPECT_EQ(answer.code, 0) << shell;
    for (const char* word : {"compare", "tolerance", "strategies", "left"})
      EXPECT_TRUE(has(answer.out, word)) << shell << ": " << word;
    EXPECT_NE(accepted(shell, "-n", answer.out), false) << shell;
  }
  EXPECT_EQ(call({"completion", "csh"}).code, exit_code::kUsage);
}

TEST(Completion, BashCompletesACommandAndItsOptions) {
  const std::string script = call({"completion", "bash"}).out;
  const auto completes = [&](const std::string& words, int place, const std::string& expected) {
    return accepted("bash", "",
                    script + "COMP_WORDS=(" + words + ")\nCOMP_CWORD=" + std::to_string(place) +
                        "\n_bnlab\n[ \"${COMPREPLY[*]}\" = '" + expected + "' ]\n");
  };
  EXPECT_NE(completes("bnlab comp", 1, "compare completion"), false);
  EXPECT_NE(completes("bnlab compare --to", 2, "--tolerance"), false);
  EXPECT_NE(completes("bnlab explain righ", 2, "right"), false);
}

TEST(Man, DescribesEveryCommand) {
  const Answer answer = call({"man"});
  EXPECT_EQ(answer.code, 0);
  for (const char* part : {".TH BNLAB 1", ".SS compare", "\\fB\\-\\-tolerance\\fR", ".SH EXIT STATUS"})
    EXPECT_TRUE(has(answer.out, part)) << part;
  EXPECT_FALSE(has(answer.out, ".SS rank\n")) << "the command for ranks is not for people";
  EXPECT_NE(accepted("groff", "-man -Tutf8 -ww", answer.out), false);
}

TEST(Schema, KnowsKeysAndComponents) {
  const Json schema = Json::parse(call({"schema"}).out);
  EXPECT_EQ(schema.at("properties").at("towers").at("minimum"), 1);
  EXPECT_EQ(schema.at("properties").at("steps").at("anyOf").at(1).at("type"), "null");
  EXPECT_EQ(schema.at("$defs").at("strategy.left").at("properties").at("weight").at("type"), "number");
  EXPECT_EQ(schema.at("$defs").at("strategy.left").at("properties").at("name").at("const"), "left");
  EXPECT_EQ(schema.at("additionalProperties"), false);
}

}  // namespace
}  // namespace bnlab
