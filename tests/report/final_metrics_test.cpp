#include "harness/report/final_metrics.hpp"

#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab {
namespace {

Record with_final(const RunSpec& run, const Json& metrics) {
  RunAccount account = synthetic_account(run, 0.5, 1);
  account.result["final"] = {{"saved", metrics}};
  return Record(compose_record(account), "record.json");
}

TEST(FinalMetrics, AreAllNumbersOfEverySeedUnderTheirPaths) {
  const Experiment experiment = synthetic_experiment(2);
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    const double score = run.seed == 0 ? 0.25 : 0.75;
    records.push_back(with_final(run, {{"mean_iou", 0.5},
                                       {"class_iou", {score, nullptr}},
                                       {"groups", {{"dusk.1", {{"mean_iou", score}}}}}}));
  }
  const Json json = report_json(make_report(experiment, records));
  const Json& saved = json.at("cells").at(0).at("metrics").at("saved");
  EXPECT_EQ(saved.at("groups/dusk.1/mean_iou").at("n"), 2);
  EXPECT_DOUBLE_EQ(saved.at("groups/dusk.1/mean_iou").at("mean").get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(saved.at("class_iou/0").at("seeds").at(1).at("value").get<double>(), 0.75);
  EXPECT_FALSE(saved.contains("class_iou/1")) << "a class that no label has";
}

TEST(FinalMetrics, AreNoneOfRunsThatFailed) {
  Json json = synthetic_record(synthetic_run("sync", 8, 2, 0), 0.5, 1).json();
  json["outcome"]["status"] = name(Status::diverged);
  const Record failed(json, "record.json");
  EXPECT_TRUE(final_metrics_of({&failed}).empty());
}

}  // namespace
}  // namespace bnlab
