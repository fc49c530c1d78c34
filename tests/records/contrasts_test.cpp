#include "harness/records/contrast_results.hpp"

#include <gtest/gtest.h>

#include "harness/records/report.hpp"
#include "tests/records/synthetic.hpp"

namespace bnlab {
namespace {

TEST(Contrasts, CompareAStrategyWithItselfUnderOtherStatistics) {
  Experiment experiment = synthetic_experiment(6);
  Contrast& contrast = experiment.contrasts[0];
  contrast.strategy = contrast.above = "per_tower";
  contrast.population = "batch";
  contrast.above_population = "saved";
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    RunAccount account = synthetic_account(run, 0.5, 1);
    account.result["final"]["batch"]["mean_iou"] = run.seed % 2 == 0 ? 0.71 : 0.69;
    records.emplace_back(compose_record(account), "record.json");
  }
  const ExperimentReport report = make_report(experiment, records);
  ASSERT_EQ(report.contrasts.size(), 1u);
  EXPECT_EQ(report.contrasts[0].interval.n, 6u);
  EXPECT_NEAR(report.contrasts[0].interval.mean, 0.2, 1e-12);
  EXPECT_NE(report_text(report).find("mean_iou batch - saved"), std::string::npos) << report_text(report);
}

}  // namespace
}  // namespace bnlab
