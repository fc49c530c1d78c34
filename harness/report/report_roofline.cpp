#include <algorithm>

#include "harness/report/report.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {

void add_roofline(ExperimentReport& report, const Experiment& experiment, const ShortestStep& shortest,
                  const std::string& note) {
  report.roofline = note;
  const std::vector<CellColumn> columns = columns_of(experiment);
  for (ReportCell& cell : report.cells) {
    const auto run = std::ranges::find_if(
        experiment.runs, [&](const RunSpec& one) { return name_of(one, columns).cell == cell.cell; });
    for (ReportRow& row : cell.rows) {
      if (run == experiment.runs.end() || !row.claimed_images_per_s()) continue;
      const std::optional<double> seconds = shortest(*run, row);
      if (!seconds) continue;
      row.values["roofline_share"] = mapped(row.of(kStepMs), [&](const auto& step) {
        return std::pair(step.first, *seconds * 1e3 / step.second);
      });
    }
  }
}

}  // namespace bnlab
