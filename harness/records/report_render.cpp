// A report as text, Markdown or JSON, and its way into a document.
#include <algorithm>
#include <cmath>
#include <set>

#include "harness/error.hpp"
#include "harness/records/report.hpp"
#include "harness/records/text_table.hpp"

namespace bnlab {
namespace {

constexpr const char* kPlusMinus = "\u00b1";

std::string plus_minus(const Interval& interval) {
  if (interval.n == 0) return "-";
  const std::string centre = fixed(interval.mean, 3);
  return std::isfinite(interval.half_width) ? centre + kPlusMinus + fixed(interval.half_width, 3) : centre;
}

std::string optional_text(const std::optional<double>& value, int decimals, double unit = 1) {
  return value ? fixed(*value / unit, decimals) : "-";
}

// A rate that may not be claimed is a dash with the reasons.
std::string rate_text(const ReportRow& row) {
  if (row.images_per_s) return fixed(*row.images_per_s, 1);
  if (row.ok == 0 || (!row.emulated && !row.jobs)) return "-";
  return std::string("- (") + (row.emulated ? "e" : "") + (row.jobs ? "j" : "") + ")";
}

std::string failures_text(const ReportRow& row) {
  std::string text;
  for (const auto& [outcome, runs] : row.failures) {
    text += (text.empty() ? "" : ", ") + std::to_string(runs) + " " + outcome;
  }
  return text;
}

// Whether one cell was run on several placements, so that rows need to name theirs.
bool names_placements(const ExperimentReport& report) {
  std::set<std::vector<std::string>> seen;
  return !std::all_of(report.rows.begin(), report.rows.end(),
                      [&](const ReportRow& row) { return seen.insert(row.cell).second; });
}

TextTable cells_table(const ExperimentReport& report, bool with_remarks) {
  TextTable table;
  const bool remarks = with_remarks && std::any_of(report.rows.begin(), report.rows.end(),
                                                   [](const ReportRow& row) { return !row.remark.empty(); });
  const bool placements = names_placements(report);
  for (std::string title : report.columns) {
    const size_t space = title.find(' ');
    if (space != std::string::npos) title[space] = '\n';
    table.columns.push_back({title});
  }
  if (placements) table.columns.push_back({"placement"});
  table.columns.push_back({"n", true});
  for (const std::string& population : report.populations) {
    table.columns.push_back({report.headline + "\n" + population, true});
  }
  table.columns.push_back({"images\n/s", true});
  if (!report.baseline.empty()) table.columns.push_back({"relative to\n" + report.baseline, true});
  for (const char* title : {"peak\nMiB", "coll.\n/step", "bytes\n/step"}) {
    table.columns.push_back({title, true});
  }
  table.columns.push_back({"failed"});
  if (remarks) table.columns.push_back({"what it shows"});
  for (const ReportRow& row : report.rows) {
    std::vector<std::string> cells = row.cell;
    if (placements) cells.push_back(row.placement);
    const bool complete = row.ok + row.failed == row.asked;
    cells.push_back(std::to_string(row.ok) + (complete ? "" : "/" + std::to_string(row.asked)));
    for (const std::string& population : report.populations) {
      cells.push_back(plus_minus(t_interval(without_seeds(row.headline.at(population)))));
    }
    cells.push_back(rate_text(row));
    if (!report.baseline.empty()) cells.push_back(optional_text(row.relative_images_per_s, 2));
    cells.push_back(optional_text(row.peak_memory_bytes, 0, 1024 * 1024));
    cells.push_back(optional_text(row.collectives_per_step, 0));
    cells.push_back(optional_text(row.bytes_per_step, 0));
    cells.push_back(failures_text(row));
    if (remarks) cells.push_back(row.remark);
    table.rows.push_back(cells);
  }
  return table;
}

TextTable contrasts_table(const ExperimentReport& report) {
  TextTable table{{{"contrast"},
                   {"at"},
                   {"metric"},
                   {"n", true},
                   {"difference", true},
                   {"sign-flip\np", true},
                   {"Holm\np", true},
                   {"verdict"}},
                  {}};
  for (const ContrastResult& result : report.contrasts) {
    const Contrast& contrast = result.contrast;
    const bool of_population = contrast.metric != "images_per_s" && contrast.metric != "peak_memory_bytes";
    std::string verdict = name(result.verdict);
    if (result.verdict == Verdict::equal)
      verdict += " within " + significant(*contrast.equivalence_margin, 3);
    table.rows.push_back({contrast.strategy + " - " + contrast.above, result.group,
                          contrast.metric + (of_population ? " " + contrast.population : ""),
                          std::to_string(result.interval.n), plus_minus(result.interval),
                          result.sign_flip_p ? significant(*result.sign_flip_p, 2) : "-",
                          significant(result.holm_p, 2), verdict});
  }
  return table;
}

// What the tables cannot say by themselves.
std::vector<std::string> footnotes(const ExperimentReport& report) {
  std::vector<std::string> notes = {
      std::string(report.headline) + ": mean " + kPlusMinus +
      " half-width of the 95 % t interval over the n seeds that ended ok; images/s and peak: medians; "
      "coll., bytes: what one rank exchanges for statistics and shuffling."};
  const auto any = [&](auto property) {
    return std::any_of(report.rows.begin(), report.rows.end(), property);
  };
  if (any([](const ReportRow& row) { return row.emulated && !row.images_per_s; })) {
    notes.push_back("(e) emulated: several towers per rank, so no throughput is claimed.");
  }
  if (any([](const ReportRow& row) { return row.jobs && !row.images_per_s; })) {
    notes.push_back("(j) ran beside other runs (--jobs), so no throughput is claimed.");
  }
  for (const ContrastResult& result : report.contrasts) {
    if (result.warning.empty()) continue;
    notes.push_back("Warning: " + result.contrast.strategy + " - " + result.contrast.above + " at " +
                    result.group + ": " + result.warning + ".");
  }
  if (report.runs.stale > 0) {
    notes.push_back(std::to_string(report.runs.stale) +
                    " runs were recorded by an earlier or unknown version of the code (stale).");
  }
  return notes;
}

std::string progress(const ExperimentReport& report) {
  const RunCounts& runs = report.runs;
  std::string text = std::to_string(runs.finished) + " of " + std::to_string(runs.asked) + " runs are there";
  if (runs.failed > 0) text += ", " + std::to_string(runs.failed) + " of them failed";
  return text + (runs.finished < runs.asked ? ": the matrix is incomplete, the numbers provisional." : ".");
}

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

Json interval_json(const SeedValues& values) {
  const Interval interval = t_interval(without_seeds(values));
  Json seeds = Json::array();
  for (const auto& [seed, value] : values) seeds.push_back({{"seed", seed}, {"value", number(value)}});
  return {{"n", interval.n},
          {"mean", number(interval.mean)},
          {"half_width", number(interval.half_width)},
          {"seeds", seeds}};
}

Json row_json(const ReportRow& row, const ExperimentReport& report) {
  Json cell = Json::object(), headline = Json::object(), failures = Json::object();
  for (size_t i = 0; i < row.cell.size(); ++i) cell[report.columns[i]] = row.cell[i];
  for (const auto& [population, values] : row.headline) headline[population] = interval_json(values);
  for (const auto& [outcome, runs] : row.failures) failures[outcome] = runs;
  return {{"cell", cell},
          {"placement", row.placement.empty() ? Json(nullptr) : Json(row.placement)},
          {"asked", row.asked},
          {"ok", row.ok},
          {"failed", row.failed},
          {"failures", failures},
          {"values", headline},  // of the headline metric, by population
          {"images_per_s", number(row.images_per_s)},
          {"relative_images_per_s", number(row.relative_images_per_s)},
          {"emulated", row.emulated},
          {"ran_beside_others", row.jobs},
          {"peak_memory_bytes", number(row.peak_memory_bytes)},
          {"collectives_per_step", number(row.collectives_per_step)},
          {"bytes_per_step", number(row.bytes_per_step)},
          {"remark", row.remark.empty() ? Json(nullptr) : Json(row.remark)}};
}

Json contrast_json(const ContrastResult& result) {
  return {{"declared", result.contrast.as_written},
          {"at", result.group},
          {"difference", interval_json(result.differences)},
          {"p", number(result.p)},
          {"p_holm", number(result.holm_p)},
          {"p_sign_flip", number(result.sign_flip_p)},
          {"verdict", name(result.verdict)},
          {"warning", result.warning.empty() ? Json(nullptr) : Json(result.warning)}};
}

}  // namespace

std::string report_text(const ExperimentReport& report) {
  std::string text = wrapped(report.experiment + ": " + report.question);
  if (!report.claim.empty()) text += wrapped("Claim: " + report.claim);
  text += wrapped(progress(report)) + "\n" + cells_table(report, false).text() + "\n";
  if (!report.contrasts.empty()) text += contrasts_table(report).text() + "\n";
  for (const std::string& note : footnotes(report)) text += wrapped(note);
  if (!report.learned.empty()) text += "\n";
  for (const std::string& sentence : report.learned) text += wrapped(sentence);
  return text;
}

std::string report_markdown(const ExperimentReport& report) {
  std::string text = "**" + markdown_escape(report.question) + "**\n\n";
  if (!report.claim.empty()) text += "Claim: " + markdown_escape(report.claim) + "\n\n";
  text += progress(report) + "\n\n" + cells_table(report, true).markdown() + "\n";
  if (!report.contrasts.empty()) text += contrasts_table(report).markdown() + "\n";
  for (const std::string& note : footnotes(report)) text += "- " + markdown_escape(note) + "\n";
  for (const std::string& sentence : report.learned) text += "\n" + markdown_escape(sentence) + "\n";
  return text;
}

Json report_json(const ExperimentReport& report) {
  Json rows = Json::array(), contrasts = Json::array();
  for (const ReportRow& row : report.rows) rows.push_back(row_json(row, report));
  for (const ContrastResult& result : report.contrasts) contrasts.push_back(contrast_json(result));
  const RunCounts& runs = report.runs;
  return {
      {"experiment", report.experiment},
      {"question", report.question},
      {"claim", report.claim},
      {"headline", report.headline},
      {"baseline", report.baseline.empty() ? Json(nullptr) : Json(report.baseline)},
      {"runs",
       {{"asked", runs.asked}, {"finished", runs.finished}, {"failed", runs.failed}, {"stale", runs.stale}}},
      {"rows", rows},
      {"contrasts", contrasts},
      {"learned", report.learned}};
}

void replace_between_markers(const std::filesystem::path& file, const std::string& name,
                             const std::string& text) {
  const std::string begin_mark = "<!-- table:" + name + " -->\n", end_mark = "<!-- end -->";
  const std::string document = read_text(file);
  const size_t begin = document.find(begin_mark);
  const size_t end = begin == std::string::npos ? begin : document.find(end_mark, begin);
  if (end == std::string::npos) {
    throw Error(Error::Kind::usage, file.string() + ": expected the lines \"<!-- table:" + name +
                                        " -->\" and \"<!-- end -->\" around the place for the table");
  }
  const size_t content = begin + begin_mark.size();
  write_atomically(file, document.substr(0, content) + text + document.substr(end));
}

}  // namespace bnlab
