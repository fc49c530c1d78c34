// Where runs lie beside numbers that others have published.
#include "harness/report/report.hpp"

#include <gtest/gtest.h>

#include "tests/store/synthetic.hpp"

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
  const std::vector<std::string> sentences = published_sentences(report.published);
  EXPECT_EQ(sentences[0], "Published mean_iou 0.600 to 0.650 (S): " + here + "as published.");
  EXPECT_EQ(sentences[1], "Published mean_iou 0.700 to 0.800 (S): " + here + "0.075 below.");
  EXPECT_EQ(sentences[2], "Published mean_iou 0.500 (S): " + here + "0.125 above.");
  experiment.published = {number(0.6, 0.65)};
  experiment.published[0].at["seed"] = 5;
  EXPECT_EQ(
      published_sentences(make_report(experiment, records).published)[0],
      "Published mean_iou 0.600 to 0.650 (S): 8x2 sync has 0.650 (saved statistics, n = 1), as published.");
  EXPECT_NE(report_text(report).find("0.075 below."), std::string::npos);
  EXPECT_EQ(report_json(report).at("published").size(), 3u);
  EXPECT_EQ(published_sentences(make_report(experiment, {}).published)[0],
            "Published mean_iou 0.600 to 0.650 (S): 8x2 sync has no finished run yet.");
}

// Two ranks, sync at three quarters of the images/s of per_tower, over sockets at half of them.
std::vector<Record> costs_of(const Experiment& experiment) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) {
    for (const bool sockets : {false, true}) {
      RunAccount account = synthetic_account(run, 0.5, static_cast<int>(run.towers()));
      if (sockets) account.placement.exchange = Exchange::sockets;
      const bool sync = run.strategy.at("name") == "sync";
      account.result["communication"]["statistics"]["collectives_per_step"] = sync ? 20 : 0;
      account.result["throughput"]["images_per_s"] = sync ? (sockets ? 20 : 30) : 40;
      records.emplace_back(compose_record(account), "record.json");
    }
  }
  return records;
}

TEST(Published, RelativeThroughputsAreThoseOfTheTable) {
  Experiment experiment = synthetic_experiment(2);
  experiment.published = {{.metric = kRelativeImagesPerS,
                           .from = 0.7,
                           .to = 0.8,
                           .source = "S",
                           .at = {{"strategy", "sync"}, {"towers", 8}}}};
  const std::string known = "Published relative_images_per_s 0.700 to 0.800 (S): ";
  ExperimentReport report = make_report(experiment, costs_of(experiment));
  EXPECT_EQ(published_sentences(report.published),
            (std::vector<std::string>{known + "8x2 sync 8x1-cpu has 0.750 (n = 2), as published.",
                                      known + "8x2 sync 8x1-cpu-sockets has 0.500 (n = 2), 0.200 below."}));
  const Json here = report_json(report).at("published").at(0).at("here");
  EXPECT_EQ(here.at("mean"), 0.75);
  EXPECT_EQ(here.at("half_width"), nullptr);
  experiment.published[0].at = {{"strategy", "sync"}};
  report = make_report(experiment, costs_of(experiment));
  EXPECT_EQ(published_sentences(report.published),
            std::vector<std::string>{
                known + "here from 0.500 (8x2 sync 8x1-cpu-sockets) to 0.750 (2x8 sync 2x1-cpu)."});
}

}  // namespace
}  // namespace bnlab
