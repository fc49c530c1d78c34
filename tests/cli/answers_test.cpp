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
  void find_out(const std::string& text) const {
    std::ofstream(scratch_ / "results/fake/findings.md") << text;
  }
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
  find_out("# What it says\n\nTwo seeds.\n\n**Answer.** Neither: they are\nthe same.\n\nMore of it.\n");
  const Answer answer = call_with_results({"answers", spec_});
  EXPECT_EQ(answer.code, 0) << answer.err;
  EXPECT_TRUE(has(answer.out, "Left | right?\n  Neither: they are the same.\n")) << answer.out;
  EXPECT_TRUE(has(answer.out,
                  "right - left: 0.0 \u00b1 0.0 points of mean_iou, undecided (n = 2; synthetic; declared "
                  "before the\n  first run)"))
      << answer.out;
}

TEST_F(Answers, InShortAreAClaimAndAWordThatLinksToThePage) {
  const std::string page = scratch_ / "README.md";
  std::ofstream(page) << "<!-- table:answers -->\n<!-- end -->\n";
  find_out("**In short.** Neither wins 1.5 points.\nRests on `right - left,\nmean_iou saved`.\n\nMore.\n");
  EXPECT_EQ(call_with_results({"answers", spec_, "--short"}).out,
            "Left | right?\n  Neither wins 1.5 points. (open)\n  " + (scratch_ / "results/fake") + "\n\n");
  call_with_results({"answers", spec_, "--short", "--into", page});
  EXPECT_TRUE(
      has(read_text(page),
          "| question | answer | evidence |\n|---|---|---|\n| Left \\| right? | Neither wins 1.5 points. "
          "| [open](results/fake/README.md) |\n<!-- end -->"))
      << read_text(page);
}

TEST_F(Answers, InShortAreRefusedWithTheirFileAndTheCure) {
  find_out("**In short.** " + std::string(120, 'x') + ".\n");
  const Answer answer = call_with_results({"answers", spec_, "--short"});
  EXPECT_EQ(answer.code, 2);
  EXPECT_TRUE(
      has(answer.err, scratch_ / "results/fake/findings.md: **In short.** expected an answer of at most "
                                 "120 characters, got 121; keep one number, and leave conditions to "
                                 "**Answer.**\n"))
      << answer.err;
  find_out("**In short.** It wins. Rests on `right - wrong, mean_iou saved`.\n");
  EXPECT_TRUE(has(call_with_results({"answers", spec_, "--short"}).err,
                  "findings.md: **In short.** no comparison `right - wrong, mean_iou saved` in fake; did you "
                  "mean `right - left, mean_iou saved`?\n"));
  EXPECT_EQ(call_with_results({"answers", spec_}).code, 0);
}

TEST_F(Answers, InShortAreThoseOfPagesWithoutASpecToo) {
  std::filesystem::create_directories(scratch_ / "results/foretold");
  std::ofstream(scratch_ / "results/foretold/findings.md")
      << "**In short.** It takes 2 ms.\nRests on `bnlab cost`.\n";
  std::ofstream(scratch_ / "results/foretold/README.md") << "# foretold: what will it take?\n";
  EXPECT_TRUE(call_with_results({"answers", "foretold", "--short"})
                  .out.starts_with("What will it take?\n  It takes 2 ms. (predicted)\n"));
  EXPECT_EQ(call_with_results({"answers", "untold", "--short"}).code, 2);
}

TEST_F(Answers, StandOnThePageBehindTheAdvice) {
  find_out("**Advice.** Take\n`left`, as [there](../other/README.md).\n\n**Answer.** The same.\n");
  const std::string page = scratch_ / "README.md";
  std::ofstream(page) << "<!-- table:fake -->\n<!-- end -->\n";
  call_with_results({"report", spec_, "--into", page});
  EXPECT_TRUE(has(read_text(page),
                  "<!-- table:fake -->\n**Advice.** Take `left`, as [there](results/other/README.md).\n\n"
                  "**Answer.** The same.\n\n"))
      << read_text(page);
}

TEST_F(Answers, TellWhatWasSeenBefore) {
  find_out("**Answer.** The same.\n\n**Seen before.** The first matrix, of\ntwo seeds: undecided.\n");
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

TEST_F(Answers, KeepTheirLinksWhereverTheyGo) {
  find_out("**Answer.** As [there](../other/README.md#it) and [here](findings.md), [far](https://a.b/c).\n");
  for (const auto& [page, link] :
       {std::pair("results/README.md",
                  "[there](other/README.md#it) and [here](fake/findings.md), [far](https://a.b/c)."),
        std::pair("README.md", "[there](results/other/README.md#it) and [here](results/fake/findings.md)")}) {
    std::ofstream(scratch_ / page) << "<!-- table:answers -->\n<!-- end -->\n";
    call_with_results({"answers", spec_, "--into", scratch_ / page});
    EXPECT_TRUE(has(read_text(scratch_ / page), link)) << read_text(scratch_ / page);
  }
}

TEST_F(Answers, GoIntoADocumentWithLinksToTheirPages) {
  find_out("**Answer.** The same.\n");
  std::ofstream(scratch_ / "README.md") << "by hand\n<!-- table:answers -->\nold\n<!-- end -->\nby hand\n";
  const Answer answer = call_with_results({"answers", spec_, "--into", scratch_ / "README.md"});
  ASSERT_EQ(answer.code, 0) << answer.err;
  const std::string page = read_text(scratch_ / "README.md");
  EXPECT_TRUE(has(page, "| [Left \\| right?](results/fake/README.md) | The same. | right - left: 0.0"))
      << page;
  EXPECT_TRUE(has(page, "declared before the first run) |\n<!-- end -->\nby hand\n")) << page;
  std::ofstream(scratch_ / "results/fake/README.md") << "# fake: which side?\n";
  call_with_results({"answers", spec_, "--into", scratch_ / "README.md"});
  EXPECT_TRUE(has(read_text(scratch_ / "README.md"), "| [Which side?](results/fake/README.md) |"));
}

}  // namespace
}  // namespace bnlab
