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

// Costs depend on the placement, accuracies do not.
TEST(Contrasts, CompareCostsOnEachPlacementApart) {
  Experiment experiment = synthetic_experiment(6);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    for (const bool sockets : {false, true}) {
      RunAccount account = synthetic_account(run, 0.5, static_cast<int>(run.towers()));
      if (sockets) account.placement.exchange = Exchange::sockets;
      const bool slower = sockets && run.strategy.at("name") == "sync";
      account.result["throughput"]["images_per_s"] =
          40 - (slower ? 10 : 0) + 0.01 * static_cast<double>(run.seed % 2);
      records.emplace_back(compose_record(account), "record.json");
    }
  }
  Contrast cost = experiment.contrasts[0];
  std::swap(cost.strategy, cost.above);
  cost.metric = "images_per_s";
  experiment.contrasts.push_back(cost);
  const std::vector<ContrastResult> results = make_report(experiment, records).contrasts;
  ASSERT_EQ(results.size(), 3u);
  EXPECT_EQ(results[0].group, "8x2");
  EXPECT_EQ(results[1].group, "8x2, 8x1-cpu");
  EXPECT_NEAR(results[1].interval.mean, 0, 1e-9);
  EXPECT_EQ(results[2].group, "8x2, 8x1-cpu-sockets");
  EXPECT_NEAR(results[2].interval.mean, 10, 1e-9);
}

}  // namespace
}  // namespace bnlab
