#include <gtest/gtest.h>

#include <cmath>

#include "harness/report/report.hpp"

namespace bnlab {
namespace {

using Rows = std::vector<std::vector<std::string>>;

ContrastResult compared(const std::string& group, const std::string& strategy, double value,
                        const std::string& above, double other, const std::string& metric = "mean_iou") {
  ContrastResult result;
  result.contrast.metric = metric;
  result.contrast.strategy = strategy;
  result.contrast.above = above;
  result.group = group;
  result.sides = {SeedValues{{0, value}, {1, value}}, SeedValues{{0, other}, {1, other}}};
  return result;
}

ExperimentReport report_of(const std::vector<ContrastResult>& contrasts) {
  ExperimentReport report;
  report.headline = "mean_iou";
  report.samples = "images";
  report.contrasts = contrasts;
  return report;
}

// A cell of which nobody compared anything.
ReportCell cell(const std::string& group, const std::string& strategy, const std::string& population,
                double value) {
  ReportCell cell;
  cell.group = group;
  cell.strategy = strategy;
  cell.scores.values[population] = {{0, value}, {1, value}};
  return cell;
}

TEST(MainTable, HasARowPerSideOfTheComparisonsTheBestFirst) {
  ExperimentReport report = report_of(
      {compared("16x1", "per_tower", 0.2, "sync", 0.7), compared("8x2", "sync", 0.7, "group_norm", 0.6)});
  report.contrasts[0].contrast.population = "batch";
  report.contrasts[0].contrast.above_population = "saved";
  const MainTable main = main_table(report);
  EXPECT_EQ(main.table.columns[0].title, "strategy");
  EXPECT_EQ(main.table.columns[2].title, "8x2");
  EXPECT_EQ(main.table.rows, (Rows{{"sync", "0.700\u00b10.000", "0.700\u00b10.000"},
                                   {"group_norm", "-", "0.600\u00b10.000"},
                                   {"per_tower, batch statistics", "0.200\u00b10.000", "-"}}));
  EXPECT_EQ(main.note,
            "mean_iou, saved statistics where no others are named: mean \u00b1 half-width of its 95 % "
            "interval, n = 2. Read 16x1 as 16 GPUs with 1 image each.");
}

TEST(MainTable, SaysWhatItsFirstGroupingOrPlacementMeans) {
  const auto note = [](const std::string& group, const std::string& samples = "images") {
    ExperimentReport report =
        report_of({compared("all", "a", 0.1, "b", 0), compared(group, "a", 0.1, "b", 0)});
    report.samples = samples;
    const std::string all = main_table(report).note;
    return all.substr(all.find("n = 2.") + 6);
  };
  EXPECT_EQ(note("shards=iid"), "");
  EXPECT_EQ(note("lr=0.1, 8x2, shards=iid", "clips"), " Read 8x2 as 8 GPUs with 2 clips each.");
  EXPECT_EQ(note("1x16"), " Read 1x16 as 1 GPU with 16 images each.");
  EXPECT_EQ(note("steps=10, 2x1-cpu-sockets"), " Read 2x1-cpu as 2 ranks with 1 tower each.");
}

TEST(MainTable, FillsWhatNobodyCompared) {
  ExperimentReport report = report_of({compared("16x1", "sync", 0.7, "per_tower", 0.2)});
  report.contrasts.push_back(compared("8x2", "sync", 0.7, "none", 0.1));
  report.cells = {cell("8x2", "per_tower", "saved", 0.4), cell("8x2", "per_tower", "batch", 0.6),
                  cell("4x4", "sync", "saved", 0.7)};
  EXPECT_EQ(main_table(report).table.rows[1],
            (std::vector<std::string>{"per_tower", "0.200\u00b10.000", "0.400\u00b10.000"}));
}

TEST(MainTable, IsOfTheMetricOfMostComparisons) {
  const std::vector<ContrastResult> both = {compared("all", "a", 2e6, "b", 1e6, "peak_memory_bytes"),
                                            compared("all", "a", 0.5, "b", 0.6)};
  EXPECT_EQ(main_table(report_of(both)).table.columns[1].title, "mean_iou");
  const MainTable memory = main_table(report_of({both[0], both[1], both[0]}));
  EXPECT_EQ(memory.table.columns[1].title, "peak MiB");
  EXPECT_EQ(memory.table.rows, (Rows{{"b", "1.0\u00b10.0"}, {"a", "1.9\u00b10.0"}})) << "less is better";
}

TEST(MainTable, ShowsLogarithmsOfRatesInPerCent) {
  EXPECT_EQ(
      main_table(report_of({compared("all", "a", 0, "b", std::log(0.8), "log_images_per_s")})).table.rows,
      (Rows{{"a", "100.0\u00b10.0"}, {"b", "80.0\u00b10.0"}}));
}

TEST(MainTable, OfManyGroupsHasARowForEach) {
  std::vector<ContrastResult> many;
  for (int i = 0; i < 6; ++i) many.push_back(compared("group " + std::to_string(i), "a", 0.1 * i, "b", 0));
  const TextTable table = main_table(report_of(many)).table;
  EXPECT_EQ(table.columns[0].title, "at");
  EXPECT_EQ(table.rows.size(), 6u);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"group 5", "0.500\u00b10.000", "0.000\u00b10.000"}));
}

TEST(MainTable, OfManyRowsHasTheNineBestAndTheLast) {
  std::vector<ContrastResult> many;
  for (int i = 1; i <= 12; ++i)
    many.push_back(compared("all", "s" + std::to_string(i), 0.01 * i, "worst", 0));
  const MainTable main = main_table(report_of(many));
  ASSERT_EQ(main.table.rows.size(), 10u);
  EXPECT_EQ(main.table.rows[8][0], "s4");
  EXPECT_EQ(main.table.rows[9][0], "worst");
  EXPECT_TRUE(main.note.ends_with(" The nine best of 13 rows and the last.")) << main.note;
}

TEST(MainTable, WithoutComparisonsHasAllMeansAndOfNothingNone) {
  ExperimentReport report = report_of({});
  EXPECT_TRUE(main_table(report).table.rows.empty() && main_table(report).note.empty());
  report.cells = {cell("all", "sync", "saved", 0.5), cell("all", "sync", "batch", 0.6)};
  EXPECT_EQ(main_table(report).table.rows,
            (Rows{{"sync, batch statistics", "0.600\u00b10.000"}, {"sync", "0.500\u00b10.000"}}));
}

}  // namespace
}  // namespace bnlab
