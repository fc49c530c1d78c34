// What a report says of runs that would answer something else today.
#include <gtest/gtest.h>

#include "harness/report/report.hpp"
#include "tests/store/synthetic.hpp"

namespace bnlab::stale_cells_test {
namespace {

// Of every run; those at these places were made by an older version.
std::vector<Record> records_of(const Experiment& experiment, const std::vector<size_t>& stale = {}) {
  std::vector<Record> records;
  for (const RunSpec& run : experiment.runs) records.push_back(synthetic_record(run, 0.5, 1));
  for (const size_t i : stale) {
    Json value = records[i].json();
    value["code"]["numerics"]["base"] = "another";
    records[i] = Record(value, "record.json");
  }
  return records;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(StaleCells, AreMarkedAndSoAreComparisonsThatRestOnThem) {
  const Experiment experiment = synthetic_experiment(3);  // each seed: per_tower and sync at 8x2, both at 2x8
  // Of per_tower at 8x2 the seeds 0 and 2, and of sync at 2x8, which no contrast compares, the seed 0.
  const std::vector<Record> records = records_of(experiment, {0, 8, 3});
  const ExperimentReport report = make_report(experiment, records);
  EXPECT_EQ(report.cells.at(0).scores.stale, (std::set<uint64_t>{0, 2}));
  EXPECT_EQ(report.cells.at(1).rows.at(0).scores.stale, std::set<uint64_t>{});
  EXPECT_EQ(report.contrasts.at(0).stale, (std::set<uint64_t>{0, 2}));
  for (const std::string& text :
       {report_text(report), report_markdown(report), report_html(report, records, "none")}) {
    EXPECT_EQ(count(text, "3 (2 stale)"), 2U) << text;  // the row, and the comparison
    EXPECT_EQ(count(text, "3 (1 stale)"), 1U) << text;
    EXPECT_EQ(count(text, "(stale) so many"), 1U) << text;
  }
  const Json json = report_json(report);
  EXPECT_EQ(json.at("cells").at(0).at("stale_seeds"), Json({0, 2}));
  EXPECT_EQ(json.at("cells").at(0).at("rows").at(0).at("stale_seeds"), Json({0, 2}));
  EXPECT_EQ(json.at("contrasts").at(0).at("stale_seeds"), Json({0, 2}));
}

TEST(StaleCells, AreMarkedNowhereIfThereAreNoneNorInDocuments) {
  const Experiment experiment = synthetic_experiment(3);
  const std::string fresh = report_markdown(make_report(experiment, records_of(experiment)));
  EXPECT_EQ(count(fresh, "stale"), 0U) << fresh;
  ExperimentReport report = make_report(experiment, records_of(experiment, {0}));
  EXPECT_NE(report_markdown(report), fresh);
  report.marks_stale = false;
  EXPECT_EQ(report_markdown(report), fresh);
}

}  // namespace
}  // namespace bnlab::stale_cells_test
