#include "harness/records/report.hpp"

#include <algorithm>

#include "harness/error.hpp"
#include "harness/records/cells.hpp"
#include "harness/records/text_table.hpp"

namespace bnlab {
namespace {

std::optional<double> median_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional(median(values));
}

// What the strategy exchanges in a step: its statistics, and samples if it shuffles them.
std::optional<double> exchanged(const Record& record, const std::string& what) {
  const auto statistics = record.number("result.communication.statistics." + what);
  const auto shuffle = record.number("result.communication.shuffle." + what);
  return statistics ? std::optional(*statistics + shuffle.value_or(0)) : std::nullopt;
}

ReportRow row_of(const CellRecords& cell, const std::string& placement,
                 const std::vector<const Record*>& records, const ExperimentReport& report) {
  ReportRow row;
  row.cell = cell.cell;
  row.strategy = cell.strategy;
  row.group = cell.group;
  row.placement = placement;
  row.asked = static_cast<int>(cell.runs.size());
  std::vector<double> images, peaks, collectives, bytes;
  const auto take = [](std::vector<double>& into, std::optional<double> value) {
    if (value) into.push_back(*value);
  };
  for (const Record* record : records) {
    if (record->failed()) {
      ++row.failed;
      ++row.failures[name(record->status())];
      continue;
    }
    ++row.ok;
    row.emulated = row.emulated || record->at("placement.emulated") == true;
    row.jobs = row.jobs || record->at("placement.jobs") != 1;
    take(images, metric_of(*record, "images_per_s"));
    take(peaks, metric_of(*record, "peak_memory_bytes"));
    take(collectives, exchanged(*record, "collectives_per_step"));
    take(bytes, exchanged(*record, "bytes_per_step"));
  }
  for (const std::string& population : report.populations) {
    row.headline[population] = values_by_seed(records, report.headline, population);
  }
  row.images_per_s = median_of(images);
  row.peak_memory_bytes = median_of(peaks);
  row.collectives_per_step = median_of(collectives);
  row.bytes_per_step = median_of(bytes);
  return row;
}

// Rows are compared with the baseline's row of the same group on the same placement.
void compare_with_baseline(ExperimentReport& report) {
  std::vector<std::string> labels;
  std::map<std::pair<std::string, std::string>, std::optional<double>> baselines;
  for (const ReportRow& row : report.rows) {
    if (std::find(labels.begin(), labels.end(), row.strategy) == labels.end()) labels.push_back(row.strategy);
    if (row.strategy == report.baseline) baselines[{row.group, row.placement}] = row.images_per_s;
  }
  if (baselines.empty()) {
    throw Error(Error::Kind::usage, "the baseline: no run of " + report.experiment + " has the strategy " +
                                        shown(report.baseline) + suggestion(report.baseline, labels));
  }
  for (ReportRow& row : report.rows) {
    const auto baseline = baselines[{row.group, row.placement}];
    if (row.images_per_s && baseline) row.relative_images_per_s = *row.images_per_s / *baseline;
  }
}

// Rows of one group compete: "8x2 sync 0.712 (next group_norm 0.650)".
std::string leaders(const ExperimentReport& report, const std::string& population) {
  struct Score {
    double value;
    std::string strategy;
  };
  std::vector<std::string> groups;
  std::map<std::string, std::vector<Score>> scores;
  for (const ReportRow& row : report.rows) {
    const auto values = row.headline.find(population);
    if (values == row.headline.end() || values->second.empty()) continue;
    if (!scores.contains(row.group)) groups.push_back(row.group);
    scores[row.group].push_back({mean(without_seeds(values->second)), row.strategy});
  }
  std::string text;
  for (const std::string& group : groups) {
    auto& rivals = scores[group];
    std::stable_sort(rivals.begin(), rivals.end(),
                     [](const Score& a, const Score& b) { return a.value > b.value; });
    const auto next = std::find_if(rivals.begin(), rivals.end(),
                                   [&](const Score& score) { return score.strategy != rivals[0].strategy; });
    if (next == rivals.end()) continue;
    text += (text.empty() ? "" : ", ") + (group == "all" ? "" : group + " ") + rivals[0].strategy + " " +
            fixed(rivals[0].value, 3) + " (next " + next->strategy + " " + fixed(next->value, 3) + ")";
  }
  return text;
}

std::vector<std::string> what_was_learned(const ExperimentReport& report) {
  std::vector<std::string> sentences;
  if (!report.populations.empty()) {
    const auto& all = report.populations;
    const std::string population = std::find(all.begin(), all.end(), "saved") != all.end() ? "saved" : all[0];
    const std::string best = leaders(report, population);
    if (!best.empty()) {
      sentences.push_back("Highest mean " + report.headline + " (" + population +
                          " statistics; exploratory): " + best + ".");
    }
  }
  if (!report.contrasts.empty()) {
    std::map<Verdict, int> verdicts;
    for (const ContrastResult& result : report.contrasts) ++verdicts[result.verdict];
    sentences.push_back("Of " + std::to_string(report.contrasts.size()) + " declared comparisons " +
                        std::to_string(verdicts[Verdict::better]) + " came out as declared, " +
                        std::to_string(verdicts[Verdict::worse]) + " the other way, " +
                        std::to_string(verdicts[Verdict::equal]) + " equal within the margin, " +
                        std::to_string(verdicts[Verdict::undecided]) + " undecided.");
  }
  return sentences;
}

void find_names(const Experiment& experiment, const std::vector<Record>& records, ExperimentReport& report) {
  for (const RunSpec& run : experiment.runs) {
    for (const std::string& population : run.evaluated()) {
      auto& all = report.populations;
      if (std::find(all.begin(), all.end(), population) == all.end()) all.push_back(population);
    }
  }
  for (const Record& record : records) {
    if (record.at("result.headline").is_string())
      report.headline = record.at("result.headline").get<std::string>();
    if (!report.headline.empty()) return;
  }
  report.headline = experiment.contrasts.empty() ? "metric" : experiment.contrasts[0].metric;
}

}  // namespace

ExperimentReport make_report(const Experiment& experiment, const std::vector<Record>& records,
                             const std::string& baseline) {
  ExperimentReport report;
  report.baseline = baseline;
  report.experiment = experiment.name;
  report.question = experiment.question;
  report.claim = experiment.claim;
  find_names(experiment, records, report);
  report.columns = Cells(experiment).columns();
  const std::vector<CellRecords> all = collect_cells(experiment, records, report.runs);
  for (const CellRecords& cell : all) {
    if (cell.placements.empty()) report.rows.push_back(row_of(cell, "", {}, report));
    for (const auto& [placement, found] : cell.placements) {
      report.rows.push_back(row_of(cell, placement, found, report));
    }
  }
  for (ReportRow& row : report.rows) {
    const auto remark = experiment.remarks.find(row.strategy);
    if (remark != experiment.remarks.end()) row.remark = remark->second;
  }
  if (!baseline.empty()) compare_with_baseline(report);
  report.contrasts = evaluate_contrasts(experiment.contrasts, all);
  report.learned = what_was_learned(report);
  return report;
}

}  // namespace bnlab
