#include <gtest/gtest.h>

#include "tests/cli/on_results.hpp"

namespace bnlab {
namespace {

using test::Answer;
using test::behaves;
using test::has;

class Answers : public test::OnResults {
 protected:
  Answers() { call_with_results({"run", spec_, "--ranks", "1"}); }
  void find_out(const std::string& text) const { std::ofstream(scratch_ / "results/fake/README.md") << text; }
  std::string spec_ = scratch_.write_spec(behaves("ok"), R"(, "question": "Left | right?",
    "matrix": {"seed": [0, 1], "strategy": ["left", "right"]},
    "contrasts": [{"metric": "mean_iou", "strategy": "right", "above": "left"}])");
};

TEST_F(Answers, AreThoseOfAllExperimentsWhereNoneIsNamed) {
  const Answer answer = call_with_results({"answers"});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, call_with_results({"answers", spec_}).out);
  const Answer none = test::call({"answers", "--results", scratch_ / "empty"});
  EXPECT_EQ(none.code, 2);
  EXPECT_TRUE(has(none.err, "no experiments in " + scratch_ / "empty" + " yet")) << none.err;
}

TEST_F(Answers, StandBesideTheirEvidence) {
  find_out("# What it says\n\nTwo seeds.\n\n**In numbers.** Neither: they are\nthe same.\n\nMore of it.\n");
  const Answer answer = call_with_results({"answers", spec_});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.out, "Left | right?\n  What it says. Neither: they are the same.\n")) << answer.out;
  EXPECT_TRUE(has(answer.out,
                  "right - left: 0.0 \u00b1 0.0 points of mean_iou, undecided (n = 2; fake; declared before "
                  "the first\n  run)"))
      << answer.out;
}

constexpr const char* kPage =
    "# Neither wins 1.5 points\n\n**Question.** Which side?\n\n**In numbers.** They are the same.\nRests on "
    "`right - left,\n"
    "mean_iou saved`.\n\nMore.\n";

TEST_F(Answers, InShortAreTheTitleOfThePageAndAWordThatLinksToIt) {
  const std::string page = scratch_ / "README.md";
  std::ofstream(page) << "<!-- table:answers -->\n<!-- end -->\n";
  find_out(kPage);
  EXPECT_EQ(call_with_results({"answers", spec_, "--short"}).out,
            "Which side?\n  Neither wins 1.5 points (open)\n  " + (scratch_ / "results/fake") + "\n\n");
  call_with_results({"answers", spec_, "--short", "--into", page});
  EXPECT_TRUE(has(read_text(page),
                  "| question | answer | evidence |\n|---|---|---|\n| Which side? | Neither wins 1.5 points "
                  "| [open](results/fake/README.md) |\n<!-- end -->"))
      << read_text(page);
}

TEST_F(Answers, InShortAreRefusedWithTheirPageAndTheCure) {
  find_out("# " + std::string(91, 'x') + "\n**In numbers.** Yes.\n");
  const Answer answer = call_with_results({"answers", spec_, "--short"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(
      has(answer.err, scratch_ / "results/fake/README.md: expected a title of at most 15 words and 90 "
                                 "characters, got 1 and 91; keep one number, and leave conditions to "
                                 "**In numbers.**\n"))
      << answer.err;
  find_out("# It wins\n**In numbers.** Yes.\nRests on `right - wrong, mean_iou saved`.\n");
  EXPECT_TRUE(has(call_with_results({"answers", spec_, "--short"}).err,
                  "README.md: no comparison `right - wrong, mean_iou saved` in fake; did you "
                  "mean `right - left, mean_iou saved`?\n"));
  EXPECT_EQ(call_with_results({"answers", spec_}).code, 0);
}

TEST_F(Answers, InShortAreThoseOfPagesWithoutASpecToo) {
  std::filesystem::create_directories(scratch_ / "results/foretold");
  std::ofstream(scratch_ / "results/foretold/README.md")
      << "# It takes 2 ms\n\n**Question.** What will it take?\n\n**In numbers.** 2 ms.\nRests on `bnlab "
         "cost`.\n";
  EXPECT_TRUE(call_with_results({"answers", "foretold", "--short"})
                  .out.starts_with("What will it take?\n  It takes 2 ms (predicted)\n"));
  EXPECT_EQ(call_with_results({"answers", "untold", "--short"}).code, 2);
}

TEST_F(Answers, BeginTheReportInFrontOfItsTables) {
  find_out(
      "# Neither wins\n**Advice.** Take\n`left`, as [there](../other/README.md).\n\n"
      "**How sure.** Once: declared.\n\n**In numbers.** The same.\n");
  const std::string text = call_with_results({"report", spec_}).out;
  EXPECT_TRUE(
      text.starts_with("Neither wins\n\nfake: Left | right?\nAdvice: Take `left`, as there.\n"
                       "How sure: Once: declared.\nIn numbers: The same.\n\nstrategy"))
      << text;
  const std::string page = call_with_results({"report", spec_, "--format", "html"}).out;
  EXPECT_TRUE(has(page, "\"title\":\"Neither wins\"") && has(page, "\"advice\":\"Take `left`, as there.\"") &&
              has(page, "\"how_sure\":\"Once: declared.\""))
      << page;
}

TEST_F(Answers, TellWhatWasSeenBefore) {
  find_out("**In numbers.** The same.\n\n**Seen before.** The first matrix, of\ntwo seeds: undecided.\n");
  EXPECT_TRUE(has(call_with_results({"answers", spec_}).out,
                  "  Seen before: The first matrix, of two seeds: undecided.\n"));
}

TEST_F(Answers, ThatNobodyHasWrittenAreOpen) {
  EXPECT_TRUE(has(call_with_results({"answers", spec_}).out, "  open\n"));
  find_out("# What it says\n\nNothing yet.\n");
  EXPECT_TRUE(has(call_with_results({"answers", spec_}).out, "  open\n"));
}

TEST_F(Answers, HaveTheExperimentsNameWhereItAsksNoQuestion) {
  const std::string spec = scratch_.write_spec(behaves("ok"), "");
  EXPECT_TRUE(call_with_results({"answers", spec}).out.starts_with("fake\n  open\n"))
      << call_with_results({"answers", spec}).out;
}

TEST_F(Answers, GoIntoADocumentWithDataStepsEvidenceAndLinksToTheirPages) {
  find_out(kPage);
  for (const auto& [page, link] :
       {std::pair("results/README.md", "fake/README.md"), std::pair("README.md", "results/fake/README.md")}) {
    std::ofstream(scratch_ / page) << "by hand\n<!-- table:answers -->\nold\n<!-- end -->\nby hand\n";
    const Answer answer = call_with_results({"answers", spec_, "--into", scratch_ / page});
    ASSERT_EQ(answer.code, 0) << answer.err;
    EXPECT_EQ(read_text(scratch_ / page),
              "by hand\n<!-- table:answers -->\n| question | answer | data | steps | evidence |\n"
              "|---|---|---|---|---|\n| [Which side?](" +
                  std::string(link) +
                  ") | Neither wins 1.5 points | fake | 10 | open |\n<!-- end -->\nby hand\n");
  }
}

TEST_F(Answers, HaveTheQuestionOfTheExperimentWhereThePageHasNone) {
  find_out("# Neither wins\n\n**In numbers.** The same.\n");
  EXPECT_TRUE(call_with_results({"answers", spec_, "--short"})
                  .out.starts_with("Left | right?\n  Neither wins (seen)\n"));
}

}  // namespace
}  // namespace bnlab
