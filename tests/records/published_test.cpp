// Where runs lie beside numbers that others have published.
#include <gtest/gtest.h>

#include "harness/records/report.hpp"
#include "tests/records/synthetic.hpp"

namespace bnlab {
namespace {

TEST(Published, RunsLieWithinBelowOrAbove) {
  Experiment experiment = synthetic_experiment(6);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    records.push_back(
        synthetic_record(run, 0.6 + static_cast<double>(run.seed) / 100, 1));  // 0.625 on average
  }
  const auto number = [](double from, double to) {
    return Published{.metric = "mean_iou",
                     .from = from,
                     .to = to,
                     .source = "S",
                     .at = {{"strategy", "sync"}, {"towers", 8}}};
  };
  experiment.published = {number(0.6, 0.65), number(0.7, 0.8), number(0.5, 0.5)};
  const ExperimentReport report = make_report(experiment, records);
  ASSERT_EQ(report.published.size(), 3u);
  const std::string here = "8x2 sync has 0.625 (saved statistics, n = 6), ";
  EXPECT_EQ(report.published[0].sentence(),
            "Published mean_iou 0.600 to 0.650 (S): " + here + "as published.");
  EXPECT_EQ(report.published[1].sentence(),
            "Published mean_iou 0.700 to 0.800 (S): " + here + "0.075 below.");
  EXPECT_EQ(report.published[2].sentence(), "Published mean_iou 0.500 (S): " + here + "0.125 above.");
  experiment.published = {number(0.6, 0.65)};
  experiment.published[0].at["seed"] = 5;
  EXPECT_EQ(
      make_report(experiment, records).published[0].sentence(),
      "Published mean_iou 0.600 to 0.650 (S): 8x2 sync has 0.650 (saved statistics, n = 1), as published.");
  EXPECT_NE(report_text(report).find("0.075 below."), std::string::npos);
  EXPECT_EQ(report_json(report).at("published").size(), 3u);
  EXPECT_EQ(make_report(experiment, {}).published[0].sentence(),
            "Published mean_iou 0.600 to 0.650 (S): 8x2 sync has no finished run yet.");
}

}  // namespace
}  // namespace bnlab
