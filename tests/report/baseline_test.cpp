#include "harness/report/report.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab::baseline_test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const ReportRow& row(const ExperimentReport& report, const std::string& group, const std::string& strategy) {
  for (const ReportCell& cell : report.cells)
    if (cell.group == group && cell.strategy == strategy) return cell.rows[0];
  throw std::out_of_range(group + " " + strategy);
}

// Two towers on two ranks: sync makes three quarters of the images, its steps last 10 and 14 ms more, for 20
// exchanges; per_tower makes as many as is said.
std::vector<Record> records_of(const Experiment& experiment, int exchanges = 0) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    if (run.towers() != 2) continue;
    RunAccount account = synthetic_account(run, 0.5, 2);
    Json& throughput = account.result["throughput"];
    if (run.strategy.at("name") == "sync") {
      throughput["images_per_s"] = 45.5 * 0.75;
      throughput["step_time_s"]["median"] = 0.35 + (run.seed == 0 ? 0.010 : 0.014);
    } else {
      account.result["communication"]["statistics"] = {{"collectives_per_step", exchanges},
                                                       {"bytes_per_step", 0}};
    }
    records.emplace_back(compose_record(account), "record.json");
  }
  return records;
}

TEST(Baseline, ThroughputIsRelativeToItsOwnOnTheSamePlacement) {
  const Experiment experiment = synthetic_experiment(2);
  const ExperimentReport report = make_report(experiment, records_of(experiment), {}, "per_tower");
  EXPECT_EQ(row(report, "2x8", "per_tower").relative_rate, 1.0);
  EXPECT_EQ(row(report, "2x8", "sync").relative_rate, 0.75);
  EXPECT_EQ(row(report, "8x2", "sync").relative_rate, std::nullopt);
}

TEST(Baseline, StepsArePairedBySeedAndSharedOutAmongTheExchanges) {
  const Experiment experiment = synthetic_experiment(2);
  const ExperimentReport report = make_report(experiment, records_of(experiment));
  const ReportRow& sync = row(report, "2x8", "sync");
  EXPECT_NEAR(over_seeds(sync.of("step_ms")).mean, 362, 1e-9);
  EXPECT_NEAR(over_seeds(sync.of("extra_step_ms")).mean, 12, 1e-9);
  EXPECT_NEAR(sync.of("extra_step_ms")[0].second, 10, 1e-9);
  EXPECT_NEAR(over_seeds(sync.of("extra_us_per_collective")).mean, 600, 1e-9);
  EXPECT_TRUE(row(report, "2x8", "per_tower").of("extra_step_ms").empty());
  const std::string text = report_markdown(report);
  EXPECT_TRUE(has(text, "| relative to per_tower | ms more /step | µs more /coll. |")) << text;
  EXPECT_TRUE(has(text, "| 34.1 | 0.75 | 12.00±25.41 | 600 |")) << text;
  EXPECT_TRUE(has(text, "| 45.5 | 1.00 | - | - |")) << text;
}

TEST(Baseline, OnlyTheExchangesThatAStrategyHasMoreCount) {
  const Experiment experiment = synthetic_experiment(2);
  const ExperimentReport report = make_report(experiment, records_of(experiment, 4), {}, "per_tower");
  EXPECT_NEAR(over_seeds(row(report, "2x8", "sync").of("extra_us_per_collective")).mean, 750, 1e-9);
  EXPECT_EQ(make_report(experiment, records_of(experiment, 4)).baseline, "");  // it exchanges something
}

TEST(Baseline, IsTheFirstThatExchangesNothingWhereThroughputsCount) {
  const Experiment experiment = synthetic_experiment(1);
  EXPECT_EQ(make_report(experiment, records_of(experiment)).baseline, "per_tower");
  std::vector<Record> emulated, alone = records_of(experiment);
  for (const RunSpec& run : experiment.runs) emulated.push_back(synthetic_record(run, 0.5, 1));
  EXPECT_EQ(make_report(experiment, emulated).baseline, "");
  EXPECT_FALSE(has(report_markdown(make_report(experiment, emulated)), "relative to"));
  std::erase_if(alone, [](const Record& record) { return record.at("spec.strategy.name") == "sync"; });
  EXPECT_EQ(make_report(experiment, alone).baseline, "");
}

TEST(Baseline, OneThatNoRunHasIsAnErrorWithTheNearestName) {
  try {
    make_report(synthetic_experiment(1), {}, {}, "per_twoer");
    FAIL();
  } catch (const Error& error) {
    EXPECT_TRUE(has(error.what(), "\"per_twoer\"; did you mean \"per_tower\"?")) << error.what();
  }
}

}  // namespace
}  // namespace bnlab::baseline_test
