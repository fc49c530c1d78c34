#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/report/report.hpp"
#include "harness/support/error.hpp"
#include "tests/report/page_data.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::report_formats_test {
namespace {

using test::data_of;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ReportCsv, HasARowPerRunWithNamedColumns) {
  const Experiment experiment = synthetic_experiment(2);  // 8 runs
  std::vector<Record> records = {synthetic_record(experiment.runs[0], 0.625, 2),
                                 synthetic_record(experiment.runs[0], 0.625, 1),
                                 synthetic_failure(experiment.runs[1], Status::crashed, 1)};
  const std::vector<std::string> lines = lines_of(report_csv(experiment, records));
  ASSERT_EQ(lines.size(), 10u);  // titles, 8 runs, one of them on two placements
  EXPECT_EQ(lines[0].rfind("experiment,run_id,seed,towers x batch,strategy,outcome,message,stale,", 0), 0u)
      << lines[0];
  EXPECT_TRUE(has(lines[0], ",saved.mean_iou,") && !has(lines[0], "class_iou")) << lines[0];
  EXPECT_EQ(lines[1].rfind("small_batch," + experiment.runs[0].id + ",0,8x2,per_tower,ok,,", 0), 0u)
      << lines[1];
  EXPECT_TRUE(has(lines[1], ",0.625,")) << lines[1];
  const auto row_of = [&](size_t run) {
    return *std::ranges::find_if(lines, [&](const auto& line) { return has(line, experiment.runs[run].id); });
  };
  EXPECT_TRUE(has(row_of(1), ",crashed,it went wrong,")) << row_of(1);
  EXPECT_TRUE(has(row_of(2), ",missing,,")) << row_of(2);
  const auto commas = [](const std::string& line) { return std::ranges::count(line, ','); };
  for (const std::string& line : lines) EXPECT_EQ(commas(line), commas(lines[0])) << line;
}

TEST(ReportCsv, QuotesWhatWouldBreakARow) {
  const Experiment experiment = synthetic_experiment(1);
  RunAccount account = synthetic_account(experiment.runs[0], 0, 1);
  account.outcome = {Status::error, "a \"b\", c\nd", 0, "", {}};
  const std::string text = report_csv(experiment, {Record(compose_record(account), "record.json")});
  EXPECT_TRUE(has(text, ",error,\"a \"\"b\"\", c\nd\",")) << text;
}

// A page of one run with a hostile question, message and figure.
std::string page_of(const TemporaryFolder& figures) {
  Experiment experiment = synthetic_experiment(1);
  experiment.question = "</script><script>alert('x')</script> & \"more\"";
  RunAccount account = synthetic_account(experiment.runs[0], 0, 1);
  account.outcome = {Status::error, "<img src=http://elsewhere>", 0, "", {}};
  std::ofstream(figures.path() / "curve.svg") << "<svg><script>1</script></svg>";
  std::ofstream(figures.path() / "curve.png") << "no svg";
  std::ofstream(figures.path() / "told.svg")
      << "<svg width=\"480.5pt\"><dc:description>sync \"wins\" by &lt; 1.<script></dc:description></svg>";
  const std::vector<Record> records = {Record(compose_record(account), "record.json")};
  return report_html(make_report(experiment, records), records, figures.path());
}

TEST(ReportHtml, IsReadAsTextAloneAndLoadsNothing) {
  const TemporaryFolder figures;
  const std::string page = page_of(figures);
  test::expect_closed(page);
  EXPECT_EQ(data_of(page).at("question"), "small_batch: </script><script>alert('x')</script> & \"more\"");
}

TEST(ReportHtml, HoldsTablesFiguresFailuresCommandAndEnvironment) {
  const TemporaryFolder figures;
  const Json data = data_of(page_of(figures));
  EXPECT_EQ(data.at("cells").at("columns").at(0), (Json{{"title", "towers\nx batch"}, {"right", false}}));
  EXPECT_EQ(data.at("cells").at("rows").at(0).at(1), "per_tower");
  EXPECT_EQ(data.at("figure"), Json::array({{{"name", "curve"}, {"svg", "<svg><script>1</script></svg>"}}}));
  EXPECT_EQ(data.at("more_figures").at(0).at("name"), "told");
  EXPECT_EQ(data.at("failures").at(0).get<std::string>().find("1 error: <img src=http://elsewhere>"), 0u);
  EXPECT_EQ(data.at("commands"), "bnlab run experiments/small_batch.json");
  const Json facts = data.at("environment").at("rows");
  EXPECT_NE(std::ranges::find(facts, Json({"libraries.libtorch", "2.11.0"})), facts.end()) << facts;
}

// Whoever draws it: the first figure is that of the page of results, and links have no targets.
TEST(ReportHtml, HasTheAnswerTheFigureThenTheMainTableAndFoldsTheRest) {
  const TemporaryFolder figures;
  for (const char* name : {"a", "matrix"})
    std::ofstream(figures.path() / (std::string(name) + ".svg")) << "<svg/>";
  const Experiment experiment = synthetic_experiment(1);
  ExperimentReport report = make_report(experiment, {synthetic_record(experiment.runs[0], 0.5, 1)});
  report.page.title = "`It` wins";
  report.page.numbers = "By `5` [points](../x/README.md).";
  report.page.figure = "figures/matrix.png";
  report.claim = "it wins";
  const std::string page = report_html(report, {}, figures.path());
  const Json data = data_of(page);
  EXPECT_EQ(data.at("title"), "`It` wins");
  EXPECT_EQ(data.at("numbers"), "By `5` points.");
  EXPECT_EQ(data.at("figure").at(0).at("name"), "matrix");
  EXPECT_EQ(data.at("more_figures").at(0).at("name"), "a");
  EXPECT_EQ(data.at("claim"), "it wins");
  test::expect_in_order(page, R"(<h1 data-words="title">
"question"
"advice"><b>Advice.</b>
"how_sure"><b>How sure.</b>
"figure"
"numbers"><b>In numbers.</b>
"main" aria-label="Main results"
"main_note"
"learned"
<h2>Expected beforehand</h2><p data-text="claim"
"progress"
<summary>All numbers</summary>
"cells" aria-label="Results"
"notes"
<summary>Declared comparisons</summary>
"contrasts"
<summary>Settings chosen beforehand</summary>
"tuning"
"length"
<summary>Stale runs</summary><ul data-list="stale"
<summary>Failed runs</summary><ul data-list="failures"
<summary>More figures</summary><div data-figures="more_figures"
<summary>How to repeat it</summary><pre data-text="commands"
<summary>Environment</summary><div data-table="environment")");
  for (const auto& [key, value] : data.items())
    EXPECT_NE(page.find("=\"" + key + "\""), std::string::npos) << key << " has no place";
}

TEST(ReportMarkdown, EscapesWhatWouldBreakATable) {
  Experiment experiment = synthetic_experiment(1);
  experiment.runs[0].strategy = {{"name", "a|b<c>"}};
  const std::string text = report_markdown(make_report(experiment, {}));
  EXPECT_TRUE(has(text, "Which strategy \\| wins?")) << text;
  EXPECT_TRUE(has(text, "| a\\|b\\<c\\> |")) << text;
}

TEST(ReplaceBetweenMarkers, ReplacesItsOwnTableOnly) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "README.md";
  std::ofstream(file)
      << "top\n<!-- table:a -->\nold a\n<!-- end -->\n<!-- table:b -->\nold b\n<!-- end -->\nlast\n";
  replace_between_markers(file, {{"table:b", "new b\n"}});
  replace_between_markers(file, {{"table:b", "newer b\n"}});
  const std::string newer =
      "top\n<!-- table:a -->\nold a\n<!-- end -->\n<!-- table:b -->\nnewer b\n<!-- end -->\nlast\n";
  EXPECT_EQ(read_text(file), newer);
  EXPECT_THROW(replace_between_markers(file, {{"table:a", "text"}, {"summary:a", "text"}}), Error);
  EXPECT_EQ(read_text(file), newer) << "all or nothing";
}

}  // namespace
}  // namespace bnlab::report_formats_test
