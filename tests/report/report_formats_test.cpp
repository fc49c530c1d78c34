#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "harness/report/report.hpp"
#include "harness/support/error.hpp"
#include "tests/store/synthetic.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::report_formats_test {
namespace {

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
  experiment.question = "<script>alert('x')</script> & \"more\"";
  RunAccount account = synthetic_account(experiment.runs[0], 0, 1);
  account.outcome = {Status::error, "<img src=http://elsewhere>", 0, "", {}};
  std::ofstream(figures.path() / "curve.svg") << "<svg><script>1</script></svg>";
  std::ofstream(figures.path() / "curve.png") << "no svg";
  std::ofstream(figures.path() / "told.svg")
      << "<svg width=\"480.5pt\"><dc:description>sync \"wins\" by &lt; 1.<script></dc:description></svg>";
  const std::vector<Record> records = {Record(compose_record(account), "record.json")};
  return report_html(make_report(experiment, records), records, figures.path());
}

TEST(ReportHtml, EscapesAllTextAndLoadsNothing) {
  const TemporaryFolder figures;
  const std::string page = page_of(figures);
  EXPECT_TRUE(has(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt; &amp; &quot;more&quot;")) << page;
  EXPECT_FALSE(has(page, "<script")) << page;
  EXPECT_FALSE(has(page, "<img src=http")) << page;
  for (const char* outside : {"src=\"http", "href=", "url(", "@import"})
    EXPECT_FALSE(has(page, outside)) << outside;
}

TEST(ReportHtml, HoldsTablesFiguresFailuresCommandAndEnvironment) {
  const TemporaryFolder figures;
  const std::string page = page_of(figures);
  EXPECT_TRUE(has(page, "<td>per_tower</td>")) << page;
  EXPECT_TRUE(has(page, "alt=\"curve\"") && has(page, "<figcaption>curve<"));
  EXPECT_TRUE(has(page, "alt=\"sync &quot;wins&quot; by &lt; 1.&lt;script&gt;\"")) << page;
  EXPECT_TRUE(has(page, "<img style=\"width: calc(1.35 * 480.5pt)\" alt=\"sync") &&
              has(page, "<img alt=\"curve\""))
      << page;
  // Base64 of "<svg><script>1</script></svg>".
  EXPECT_TRUE(has(page, "src=\"data:image/svg+xml;base64,PHN2Zz48c2NyaXB0PjE8L3NjcmlwdD48L3N2Zz4=\""))
      << page;
  EXPECT_TRUE(has(page, "1 error: &lt;img")) << page;
  EXPECT_TRUE(has(page, "<pre>bnlab run experiments/small_batch.json</pre>")) << page;
  EXPECT_TRUE(has(page, "<td>libraries.libtorch</td><td>2.11.0</td>")) << page;
}

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
  size_t place = 0;
  for (const char* part :
       {"<h1><code>It</code> wins</h1>", "<figcaption>matrix<",
        "<b>In numbers.</b> By <code>5</code> points.</p>", "Main results", "Expected beforehand",
        "<details>", "All numbers", "More figures", "<figcaption>a<"}) {
    place = page.find(part, place);
    ASSERT_NE(place, std::string::npos) << part << " in " << page;
  }
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
