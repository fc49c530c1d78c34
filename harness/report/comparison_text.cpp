#include <cmath>

#include "harness/experiment/measures.hpp"
#include "harness/report/comparison.hpp"
#include "harness/report/report.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

std::string percent_text(const ComparedMetric& metric) {
  const bool is_relative = measure_of(metric.metric).is_logarithm;
  if (metric.a.mean == 0 || is_relative) return "-";
  const double percent = 100 * metric.difference.mean / std::abs(metric.a.mean);
  return (percent > 0 ? "+" : "") + fixed(percent, 1);
}

std::string change_text(const ComparedMetric& metric) {
  const bool directed = metric.change == Change::better || metric.change == Change::worse;
  return name_of(metric.change) + (directed && metric.few_seeds() ? " (few seeds)" : "");
}

TextTable changes_table(const Comparison& comparison, std::optional<Change> only) {
  TextTable table{
      {{"cell"}, {"metric"}, {"n", true}, {"A", true}, {"B", true}, {"B - A", true}, {"%", true}, {"B is"}},
      {}};
  for (const ComparedCell& cell : comparison.cells) {
    for (const ComparedMetric& metric : cell.metrics) {
      if (only && metric.change != *only) continue;
      const Measure unit = measure_of(metric.metric);
      table.rows.push_back({cell.name, unit.title, std::to_string(metric.difference.n),
                            fixed(metric.a.mean / unit.size, unit.decimals),
                            fixed(metric.b.mean / unit.size, unit.decimals),
                            plus_minus(metric.difference, unit.decimals, unit.size, " \u00b1 "),
                            percent_text(metric), change_text(metric)});
    }
  }
  return table;
}

// The values of a key on one line, cut off where they are many.
std::string values_text(const std::set<std::string>& values) {
  constexpr size_t kMost = 48;
  if (values.empty()) return "-";
  const std::string text = joined({values.begin(), values.end()});
  return text.size() <= kMost ? text : text.substr(0, kMost - 3) + "...";
}

std::string keys_text(const std::string& title, const std::vector<DifferingKey>& keys) {
  if (keys.empty()) return "";
  TextTable table{{{title}, {"A"}, {"B"}}, {}};
  for (const DifferingKey& key : keys)
    table.rows.push_back({key.key, values_text(key.a), values_text(key.b)});
  return table.text() + "\n";
}

}  // namespace

std::string comparison_text(const Comparison& comparison, std::optional<Change> only) {
  std::string text = std::to_string(comparison.pairs) + (comparison.pairs == 1 ? " pair" : " pairs") +
                     " of runs, from " + std::to_string(comparison.runs_a) + " finished in A and " +
                     std::to_string(comparison.runs_b) + " in B.\n\n";
  text += keys_text("differs in the specs", comparison.spec);
  text += keys_text("differs in the environment", comparison.environment);
  const TextTable table = changes_table(comparison, only);
  if (!table.rows.empty()) text += table.text() + "\n";
  if (table.rows.empty() && only) text += std::string("Nothing is ") + name_of(*only) + ".\n\n";
  text += wrapped(
      "A and B: means over the n paired seeds; \u00b1 is the half-width of the 95 % t interval of the "
      "differences. Better and worse lie beyond it, each row judged alone: of twenty rows without any "
      "change one is expected to. Fewer than " +
      std::to_string(kFewestSeeds) + " seeds show a direction at most.");
  if (const Comparison::Repeated repeated = comparison.repeated(); repeated.cells > 0) {
    text +=
        wrapped("Timed in turns: of " + std::to_string(repeated.cells) +
                " cells the images/s, in % of the run beside them, differ by at most " +
                significant(100 * kRepeats, 2) + " points in " + std::to_string(repeated.within) +
                ", and the intervals of A and B overlap in " + std::to_string(repeated.overlapping) + ".");
  }
  for (const std::string& note : comparison.notes) text += wrapped(note);
  if (comparison.broken > 0) {
    text += "\n" + std::to_string(comparison.broken) + " runs that ended ok in A failed in B:\n";
    for (const std::string& reason : comparison.reasons) text += wrapped(reason);
  }
  const std::optional<int> regressions = comparison.regressions();
  return text + "\n" +
         (!regressions ? "No verdict: the specs of A and B differ, so that they answer different questions."
          : *regressions == 0 ? "No regression beyond the intervals."
                              : "Regressions: " + std::to_string(*regressions) + ".") +
         "\n";
}

}  // namespace bnlab
