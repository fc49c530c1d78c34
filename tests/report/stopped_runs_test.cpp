// What is said of runs that stop_early has ended: they count, and every table and count says so.
#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "harness/report/status.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab::stopped_runs_test {
namespace {

// Of every run; those at these places were stopped.
std::vector<Record> records_of(const Experiment& experiment, const std::vector<size_t>& stopped) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) records.push_back(synthetic_record(run, 0.5, 1));
  for (const size_t i : stopped) {
    Json value = records[i].json();
    value["result"]["stopped_early"] = {
        {"step", 20}, {"reason", "at chance"}, {"loss", 1.1}, {"first_loss", 1.1}};
    records[i] = Record(value, "record.json");
  }
  return records;
}

TEST(StoppedRuns, CountAndAreMarkedWithTheComparisonsThatRestOnThem) {
  const Experiment experiment = synthetic_experiment(3);  // each seed: per_tower and sync at 8x2, both at 2x8
  const std::vector<Record> records = records_of(experiment, {0, 8, 3});
  const ExperimentReport report = make_report(experiment, records);
  EXPECT_EQ(report.cells.at(0).scores.stopped, (std::set<uint64_t>{0, 2}));
  EXPECT_EQ(report.cells.at(0).scores.count(Status::ok), 3);
  EXPECT_EQ(report.contrasts.at(0).stopped, (std::set<uint64_t>{0, 2}));
  EXPECT_EQ(report.contrasts.at(0).interval.n, 3u);
  for (const std::string& text :
       {report_text(report), report_markdown(report), report_html(report, records, "none")}) {
    EXPECT_NE(text.find("3 (2 stopped early)"), std::string::npos) << text;
    EXPECT_NE(text.find("3 (1 stopped early)"), std::string::npos) << text;
    EXPECT_NE(text.find("(stopped early) so many"), std::string::npos) << text;
  }
  const Json json = report_json(report);
  EXPECT_EQ(json.at("cells").at(0).at("rows").at(0).at("stopped_early_seeds"), Json({0, 2}));
  EXPECT_EQ(json.at("contrasts").at(0).at("stopped_early_seeds"), Json({0, 2}));
  EXPECT_EQ(json.at("runs").at("stopped_early"), (Json{{"at chance", 3}}));
  EXPECT_NE(report_csv(experiment, records).find(",at chance,"), std::string::npos);
}

TEST(StoppedRuns, AreNotSpokenOfWhereThereAreNone) {
  const Experiment experiment = synthetic_experiment(3);
  EXPECT_EQ(report_text(make_report(experiment, records_of(experiment, {}))).find("stopped early"),
            std::string::npos);
}

TEST(StoppedRuns, HaveALineInTheStatus) {
  const Experiment experiment = synthetic_experiment(2);
  ExperimentStatus status{count_runs(experiment, records_of(experiment, {0, 1})), "small_batch", {}};
  EXPECT_EQ(status.ok(), 8);
  EXPECT_NE(status_text({status}).find("small_batch: 2 at chance"), std::string::npos)
      << status_text({status});
  EXPECT_EQ(status_json({status}).at(0).at("stopped_early"), (Json{{"at chance", 2}}));
}

}  // namespace
}  // namespace bnlab::stopped_runs_test
