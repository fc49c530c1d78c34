#include <gtest/gtest.h>

#include "harness/report/answers.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

ContrastResult result(const std::string& metric, double mean, double half_width, Verdict verdict) {
  ContrastResult result;
  result.contrast.metric = metric;
  result.contrast.strategy = "sync";
  result.contrast.above = "per_tower";
  result.contrast.equivalence_margin = 0.02;
  result.group = "8x2";
  result.interval = {8, mean, half_width};
  result.verdict = verdict;
  return result;
}

std::string evidence(const std::vector<ContrastResult>& results) {
  ExperimentReport report;
  report.contrasts = results;
  report.declared_in_short = declaration_in_short(results, {});
  return answer_to(synthetic_experiment(1), report, "no such folder").evidence;
}

TEST(Evidence, TellsSharesInPointsAndCostsInTheirUnit) {
  EXPECT_EQ(evidence({result("mean_iou", 0.0628, 0.0159, Verdict::better)}),
            "sync - per_tower at 8x2: 6.3 \u00b1 1.6 points of mean_iou, better (n = 8; shapes; the "
            "time of declaration was not kept)");
  EXPECT_EQ(evidence({result("images_per_s", -12.5, 1.25, Verdict::worse)}),
            "sync - per_tower at 8x2: -12.5 \u00b1 1.2 images/s, worse (n = 8; shapes; the "
            "time of declaration was not kept)");
  EXPECT_EQ(evidence({result("peak_memory_bytes", 204.25 * 1024 * 1024, 512 * 1024, Verdict::better)}),
            "sync - per_tower at 8x2: 204.2 \u00b1 0.5 peak MiB, more (n = 8; shapes; the "
            "time of declaration was not kept)");
}

TEST(Evidence, NamesOtherStatisticsTheMarginAndWhatCameOfAllComparisons) {
  ContrastResult first = result("mean_iou", 0.005, 0.0061, Verdict::equal);
  first.contrast.above = "sync";
  first.contrast.population = "mean";
  first.contrast.above_population = "saved";
  first.group = "all";
  EXPECT_EQ(evidence({first, result("mean_iou", 0, 0, Verdict::better)}),
            "sync, mean statistics - sync: 0.5 \u00b1 0.6 points of mean_iou, equal within 2 points (n = 8; "
            "shapes; "
            "of 2 comparisons 1 better, 1 equal; the time of declaration was not kept)");
}

TEST(Evidence, SaysWhereOneSideFailed) {
  ContrastResult one = result("mean_iou", 0.05, 0.01, Verdict::better);
  one.failed = {3, 4};
  EXPECT_NE(evidence({one}).find("(n = 8, at 2 more one side failed; shapes"), std::string::npos)
      << evidence({one});
}

TEST(Evidence, IsTheFirstThatWasDecidedOrElseTheFirst) {
  const ContrastResult open = result("mean_iou", 0.001, 0.02, Verdict::undecided),
                       decided = result("mean_iou", -0.08, 0.03, Verdict::worse);
  EXPECT_TRUE(evidence({open, ContrastResult(), decided}).starts_with("sync - per_tower at 8x2: -8.0"));
  EXPECT_TRUE(evidence({open, open}).starts_with("sync - per_tower at 8x2: 0.1"));
  EXPECT_TRUE(evidence({ContrastResult(), open}).starts_with("sync - per_tower at 8x2: 0.1"));
}

TEST(Evidence, SaysWhetherItWasDeclaredBeforehand) {
  ContrastResult before = result("mean_iou", 0.05, 0.01, Verdict::better), after = before;
  before.declared = {"2026-01-02T03:04:05Z", 0};
  after.declared = {"2026-01-02T03:04:05Z", 3};
  EXPECT_NE(evidence({before, before}).find("; declared before the first run)"), std::string::npos);
  EXPECT_NE(evidence({before, after}).find("; 1 of them declared after runs had finished)"),
            std::string::npos);
  after.declared.reset();
  EXPECT_NE(evidence({before, after}).find("; 1 of them not declared when runs were started)"),
            std::string::npos);
}

TEST(Evidence, IsOwnedUpToWhereThereIsNone) {
  EXPECT_EQ(evidence({}), "nothing declared");
  EXPECT_EQ(evidence({ContrastResult()}), "no runs yet");
}

}  // namespace
}  // namespace bnlab
