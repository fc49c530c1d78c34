// A report as one page that needs nothing else (report.html): tables and sentences as in its text, and
// figures, commands and environments.
#include <algorithm>
#include <iostream>
#include <set>
#include <texts/report_page.hpp>

#include "harness/report/comparison.hpp"
#include "harness/report/html.hpp"
#include "harness/report/report.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// By name, but for `first`.
std::vector<Json> figures_in(const fs::path& folder, const fs::path& first) {
  std::set<std::pair<bool, fs::path>> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const fs::path& file = entry.path();
    if (file.extension() == ".svg" && entry.is_regular_file())
      files.emplace(file.stem() != first.stem(), file);
  }
  return mapped(files, [](const auto& of) {
    return Json{{"name", of.second.stem().string()}, {"svg", read_text(of.second)}};
  });
}

TextTable environments(const std::vector<Record>& records) {
  TextTable table{{{"key"}, {"values"}}, {}};
  for (const auto& [key, values] : facts_of(mapped(records, [](const Record& record) { return &record; })))
    table.rows.push_back({key, joined({values.begin(), values.end()}, "; ")});
  return table;
}

}  // namespace

std::string report_html(const ExperimentReport& report, const std::vector<Record>& records,
                        const fs::path& figures) {
  const ResultPage& page = report.page;
  std::vector<Json> drawn = figures_in(figures, page.figure);
  if (drawn.empty()) {
    std::cerr << "note: the page has no figures, since none are in " << figures.string() << "; "
              << shell_command("scripts/plot.sh", {figures.parent_path().string()})
              << " draws them, then make it again\n";
  }
  const auto first_behind = drawn.begin() + (drawn.empty() ? 0 : 1);
  const MainTable main = main_table(report);
  std::vector<std::string> notes = footnotes(report), stale;
  if (!report.leaders.empty()) notes.push_back(report.leaders);
  for (const auto& [reason, runs] : report.runs.stale_reasons)
    stale.push_back(std::to_string(runs) + " runs: " + reason);
  std::set<std::string> commands;
  for (const Record& record : records)
    if (record.at("command").is_string()) commands.insert(record.at("command").get<std::string>());
  return page_with({{"title", without_links(page.title.empty() ? report.experiment : page.title)},
                    {"question", report.experiment + ": " + report.question},
                    {"advice", without_links(page.advice)},
                    {"how_sure", without_links(page.how_sure)},
                    {"figure", std::vector(drawn.begin(), first_behind)},
                    {"numbers", without_links(page.numbers)},
                    {"main", table_json(main.table)},
                    {"main_note", main.note},
                    {"learned", report.learned},
                    {"claim", report.claim},
                    {"progress", progress_sentence(report)},
                    {"cells", table_json(cells_table(report))},
                    {"notes", notes},
                    {"contrasts", table_json(contrasts_table(report))},
                    {"tuning", table_json(tuning_table(report))},
                    {"length", table_json(length_table(report))},
                    {"stale", stale},
                    {"failures", failure_lines(report.runs.failures)},
                    {"more_figures", std::vector(first_behind, drawn.end())},
                    {"commands", joined({commands.begin(), commands.end()}, "\n")},
                    {"environment", table_json(environments(records))}},
                   kReportPage);
}

}  // namespace bnlab
