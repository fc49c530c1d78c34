#include "harness/report/baseline.hpp"

#include <algorithm>
#include <set>

#include "harness/error.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

void compare(ReportRow& row, const ReportRow& baseline) {
  const auto own = row.claimed_images_per_s(), of_baseline = baseline.claimed_images_per_s();
  if (!own || !of_baseline) return;
  row.relative_images_per_s = *own / *of_baseline;
  if (&row == &baseline) return;
  row.extra_step_ms = paired_differences(row.step_ms, baseline.step_ms);
  const double more =
      over_seeds(row.collectives_per_step).mean - over_seeds(baseline.collectives_per_step).mean;
  if (!(more > 0)) return;
  for (const auto& [seed, ms] : row.extra_step_ms) {
    row.extra_us_per_collective.emplace_back(seed, 1000 * ms / more);
  }
}

}  // namespace

std::string default_baseline(const ExperimentReport& report) {
  std::string first;
  std::set<std::string> counted;
  for (const ReportCell& cell : report.cells) {
    for (const ReportRow& row : cell.rows) {
      if (!row.claimed_images_per_s()) continue;
      counted.insert(cell.strategy);
      if (first.empty() && over_seeds(row.collectives_per_step).mean == 0) first = cell.strategy;
    }
  }
  return counted.size() > 1 ? first : "";
}

void compare_with_baseline(ExperimentReport& report) {
  std::vector<std::string> labels;
  std::map<std::pair<std::string, std::string>, const ReportRow*> baselines;  // by group and placement
  for (const ReportCell& cell : report.cells) {
    if (std::ranges::find(labels, cell.strategy) == labels.end()) labels.push_back(cell.strategy);
    if (cell.strategy != report.baseline) continue;
    for (const ReportRow& row : cell.rows) baselines[{cell.group, row.placement}] = &row;
  }
  if (baselines.empty()) {
    throw Error(Error::Kind::usage, "the baseline: no run of " + report.experiment + " has the strategy " +
                                        shown(report.baseline) + suggestion(report.baseline, labels));
  }
  for (ReportCell& cell : report.cells) {
    for (ReportRow& row : cell.rows) {
      const auto baseline = baselines.find({cell.group, row.placement});
      if (baseline != baselines.end()) compare(row, *baseline->second);
    }
  }
}

}  // namespace bnlab
