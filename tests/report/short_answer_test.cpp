#include "harness/report/short_answer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

// "sync - per_tower at 16x1, mean_iou saved" on seeds 0 to 7, better, declared before the first run.
ContrastResult result(Verdict verdict = Verdict::better, uint64_t first_seed = 0) {
  ContrastResult result;
  result.contrast.metric = "mean_iou";
  result.contrast.strategy = "sync";
  result.contrast.above = "per_tower";
  result.strategies = {"sync", "per_tower"};
  result.group = "16x1";
  for (uint64_t seed = first_seed; seed < first_seed + 8; ++seed) result.differences.emplace_back(seed, 0.1);
  result.verdict = verdict;
  result.declared = {"2026-01-02T03:04:05Z", 0};
  return result;
}

ContrastResult undeclared(ContrastResult result) {
  result.declared.reset();
  return result;
}

ContrastResult of(ContrastResult result, const std::string& strategy, const std::string& above) {
  result.contrast.strategy = strategy;
  result.contrast.above = above;
  result.strategies = {strategy, above};
  return result;
}

// Of an experiment "here" on nuclei, which may be repeated in "again" and, on shapes, in "shapes".
class ShortAnswers : public ::testing::Test {
 protected:
  // Of a title and, behind " Rests on ", its grounds.
  ShortAnswer answer(const std::string& written) const {
    const size_t end = std::min(written.find(" Rests on "), written.size());
    ResultPage page;
    page.title = written.substr(0, end);
    if (end < written.size()) page.rests_on = written.substr(end + 10);
    return short_answer_of(page, "here",
                           [&](const std::string& name) -> const Grounds& { return at_.at(name); });
  }
  std::string word(const std::string& rests_on) const {
    return name(answer("It wins. Rests on " + rests_on + ".").foundation);
  }
  std::string refusal(const std::string& written) const {
    try {
      answer(written);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
  std::map<std::string, Grounds> at_ = {{"here", {{"nuclei"}, {result()}}},
                                        {"again", {{"nuclei"}, {result(Verdict::better, 8)}}},
                                        {"shapes", {{"shapes"}, {result()}}}};
};

constexpr const char* kOwn = "`sync - per_tower at 16x1, mean_iou saved`";
constexpr const char* kRepeated =
    "`sync - per_tower at 16x1, mean_iou saved`, again in [again](../again/README.md)";
constexpr const char* kOnShapes =
    "`sync - per_tower at 16x1, mean_iou saved`, again in [shapes](../shapes/README.md)";

TEST_F(ShortAnswers, NameComparisonsAsTheirRowsBegin) {
  EXPECT_EQ(comparison_name(result()), "sync - per_tower at 16x1, mean_iou saved");
  ContrastResult all = result();
  all.group = "all";
  all.contrast.population = "mean";
  all.contrast.above_population = "saved";
  EXPECT_EQ(comparison_name(all), "sync - per_tower, mean_iou mean - saved");
}

TEST_F(ShortAnswers, AreFirmOnOtherSeedsOrOtherData) {
  EXPECT_EQ(word(kRepeated), "firm");
  EXPECT_EQ(word(kOnShapes), "firm");
  EXPECT_EQ(answer(std::string("It wins 5 points. Rests on ") + kRepeated + ".").text, "It wins 5 points.");
}

TEST_F(ShortAnswers, StandOnceOnTheSameSeedsOfTheSameData) {
  EXPECT_EQ(word(kOwn), "once");
  at_.at("again").contrasts = {result(Verdict::better, 7)};
  EXPECT_EQ(word(kRepeated), "once");
}

TEST_F(ShortAnswers, StandOnceWhereOnlyTheOtherIsUndecidedOrWasNotDeclared) {
  at_.at("again").contrasts = {result(Verdict::undecided, 8)};
  EXPECT_EQ(word(kRepeated), "once");
  at_.at("again").contrasts = {result(Verdict::direction_above, 8)};
  EXPECT_EQ(word(kRepeated), "once");
  at_.at("again").contrasts = {undeclared(result(Verdict::better, 8))};
  EXPECT_EQ(word(kRepeated), "once");
  EXPECT_EQ(word(std::string(kRepeated) + ", [shapes](../shapes/README.md)"), "firm");
}

TEST_F(ShortAnswers, AreSeenWhereTheirOwnWasNotDeclaredBeforeTheFirstRunOrHasFewSeeds) {
  at_.at("here").contrasts = {undeclared(result())};
  EXPECT_EQ(word(kRepeated), "seen");
  at_.at("here").contrasts = {result()};
  at_.at("here").contrasts[0].declared->after_runs = 1;
  EXPECT_EQ(word(kRepeated), "seen");
  at_.at("here").contrasts = {result(Verdict::direction_below)};
  EXPECT_EQ(word(kOwn), "seen");
  EXPECT_STREQ(name(answer("A step takes long.").foundation), "seen");
}

TEST_F(ShortAnswers, AreOpenWhereUndecidedContradictedOrNotWritten) {
  for (const Verdict verdict : {Verdict::undecided, Verdict::not_claimed}) {
    at_.at("here").contrasts = {result(verdict)};
    EXPECT_EQ(word(kRepeated), "open");
  }
  for (const Verdict verdict : {Verdict::worse, Verdict::equal}) {
    at_.at("here").contrasts = {result()};
    at_.at("again").contrasts = {result(verdict, 8)};
    EXPECT_EQ(word(kRepeated), "open");
  }
  EXPECT_STREQ(name(answer("").foundation), "open");
  EXPECT_EQ(answer("").text, "no answer yet");
}

TEST_F(ShortAnswers, ArePredictedByTheModel) {
  EXPECT_EQ(word("`bnlab cost`"), "predicted");
}

TEST_F(ShortAnswers, AreAsGoodAsTheirWeakestPart) {
  at_.at("here").contrasts.push_back(of(result(), "sync", "frozen"));
  const std::string repeated = kRepeated;
  EXPECT_EQ(word(repeated + " - `sync - frozen at 16x1, mean_iou saved`"), "once");
  EXPECT_EQ(word("`sync - frozen at 16x1, mean_iou saved` - " + repeated), "once");
  EXPECT_EQ(word(repeated + " - `bnlab cost`"), "predicted");
  EXPECT_EQ(word("- " + repeated + " - " + repeated), "firm");
}

TEST_F(ShortAnswers, FindAComparisonOfAnotherNameBehindItsLink) {
  at_.at("again").contrasts[0].group = "8x2";
  EXPECT_EQ(
      word(std::string(kOwn) + ", [again](../again/README.md) `sync - per_tower at 8x2, mean_iou saved`"),
      "firm");
  EXPECT_EQ(
      refusal(std::string("It wins. Rests on ") + kRepeated + "."),
      "no comparison `sync - per_tower at 16x1, mean_iou saved` in again; did you mean `sync - per_tower "
      "at 8x2, mean_iou saved`?");
}

TEST_F(ShortAnswers, RestOnOneThingInEachPart) {
  at_.at("again").contrasts[0] = of(at_.at("again").contrasts[0], "per_tower", "sync");
  const std::string turned = "[again](../again/README.md) `per_tower - sync at 16x1, mean_iou saved`";
  EXPECT_NE(
      refusal(std::string("It wins. Rests on ") + kOwn + ", " + turned + ".").find("asks another thing"),
      std::string::npos);
  at_.at("here").contrasts[0].verdict = at_.at("again").contrasts[0].verdict = Verdict::equal;
  EXPECT_EQ(word(std::string(kOwn) + ", " + turned), "firm");
  at_.at("here").contrasts = {of(result(), "sync", "group_norm")};
  at_.at("again").contrasts = {of(result(Verdict::better, 8), "sync", "group_norm(groups=4)")};
  EXPECT_EQ(word("`sync - group_norm at 16x1, mean_iou saved`, [again](../again/README.md) `sync - "
                 "group_norm(groups=4) at 16x1, mean_iou saved`"),
            "firm");
  at_.at("here").contrasts = {of(result(), "sync", "sync(gradient=stopped)")};
  at_.at("again").contrasts = {of(result(Verdict::better, 8), "sync", "sync(variance=averaged)")};
  EXPECT_NE(refusal("It wins. Rests on `sync - sync(gradient=stopped) at 16x1, mean_iou saved`, "
                    "[again](../again/README.md) `sync - sync(variance=averaged) at 16x1, mean_iou saved`.")
                .find("asks another thing"),
            std::string::npos);
  EXPECT_NE(refusal("It wins. Rests on much.").find("expected a comparison in backticks"), std::string::npos);
}

TEST_F(ShortAnswers, AreRefusedBeyondTheirLength) {
  const std::string longest = std::string(87, 'x') + " \u00b5s";
  EXPECT_EQ(answer(longest).text, longest);
  EXPECT_EQ(
      refusal(longest + "."),
      "expected a title of at most 15 words and 90 characters, got 2 and 91; keep one number, and leave "
      "conditions to **In numbers.**");
  const std::string most = "a b c d e f g h i j k l m n o";
  EXPECT_EQ(answer(most).text, most);
  EXPECT_NE(refusal(most + " p").find("got 16 and 31"), std::string::npos);
}

}  // namespace
}  // namespace bnlab
