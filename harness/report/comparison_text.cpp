// A comparison as text and as JSON.
#include <algorithm>
#include <cmath>

#include "harness/mapped.hpp"
#include "harness/report/comparison.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

struct Unit {
  const char* title;
  double size;
  int decimals;
};

Unit unit_of(const std::string& metric) {
  if (metric == "images_per_s") return {"images/s", 1, 1};
  if (metric == "step_time_s") return {"step ms", 1e-3, 2};
  if (metric == "peak_memory_bytes") return {"peak MiB", 1024 * 1024, 1};
  return {nullptr, 1, 4};
}

std::string difference_text(const ComparedMetric& metric, const Unit& unit) {
  const std::string centre = fixed(metric.difference.mean / unit.size, unit.decimals);
  return metric.difference.n < 2
             ? centre
             : centre + " \u00b1 " + fixed(metric.difference.half_width / unit.size, unit.decimals);
}

std::string percent_text(const ComparedMetric& metric) {
  if (metric.a == 0) return "-";
  const double percent = 100 * metric.difference.mean / std::abs(metric.a);
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
      const Unit unit = unit_of(metric.metric);
      table.rows.push_back({cell.name, unit.title == nullptr ? metric.metric : unit.title,
                            std::to_string(metric.difference.n), fixed(metric.a / unit.size, unit.decimals),
                            fixed(metric.b / unit.size, unit.decimals), difference_text(metric, unit),
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
  for (const DifferingKey& key : keys) {
    table.rows.push_back({key.key, values_text(key.a), values_text(key.b)});
  }
  return table.text() + "\n";
}

Json keys_json(const std::vector<DifferingKey>& keys) {
  return mapped(keys, [](const DifferingKey& key) {
    return Json{{"key", key.key}, {"a", Json(key.a)}, {"b", Json(key.b)}};
  });
}

Json metric_json(const ComparedMetric& metric) {
  const double half_width = metric.difference.half_width;
  return {{"metric", metric.metric},
          {"n", metric.difference.n},
          {"a", metric.a},
          {"b", metric.b},
          {"difference", metric.difference.mean},
          {"half_width", std::isfinite(half_width) ? Json(half_width) : Json()},
          {"b_is", name_of(metric.change)},
          {"few_seeds", metric.few_seeds()}};
}

}  // namespace

std::string comparison_text(const Comparison& comparison, std::optional<Change> only) {
  std::string text = std::to_string(comparison.pairs) + " pairs of runs, from " +
                     std::to_string(comparison.runs_a) + " finished in A and " +
                     std::to_string(comparison.runs_b) + " in B.\n\n";
  text += keys_text("differs in the specs", comparison.spec);
  text += keys_text("differs in the environment", comparison.environment);
  const TextTable table = changes_table(comparison, only);
  if (!table.rows.empty()) text += table.text() + "\n";
  if (table.rows.empty() && only) text += std::string("Nothing is ") + name_of(*only) + ".\n\n";
  text += wrapped(
      "A and B: means over the n paired seeds; \u00b1 is the half-width of the 95 % t interval of the "
      "differences. "
      "Better and worse lie beyond it, each row judged alone: of twenty rows without any change one is "
      "expected "
      "to. Fewer than " +
      std::to_string(kFewestSeeds) + " seeds show a direction at most.");
  for (const std::string& note : comparison.notes) text += wrapped(note);
  if (comparison.broken > 0) {
    text += "\n" + std::to_string(comparison.broken) + " runs that ended ok in A failed in B:\n";
    for (const std::string& reason : comparison.reasons) text += wrapped(reason);
  }
  const int regressions = comparison.regressions();
  return text + "\n" +
         (regressions == 0 ? "No regression beyond the intervals."
                           : "Regressions: " + std::to_string(regressions) + ".") +
         "\n";
}

Json comparison_json(const Comparison& comparison, std::optional<Change> only) {
  Json cells = Json::array();
  for (const ComparedCell& cell : comparison.cells) {
    Json metrics = Json::array();
    for (const ComparedMetric& metric : cell.metrics) {
      if (!only || metric.change == *only) metrics.push_back(metric_json(metric));
    }
    if (!metrics.empty()) cells.push_back({{"cell", cell.name}, {"metrics", metrics}});
  }
  return {
      {"runs_a", comparison.runs_a},
      {"runs_b", comparison.runs_b},
      {"pairs", comparison.pairs},
      {"differs", {{"spec", keys_json(comparison.spec)}, {"environment", keys_json(comparison.environment)}}},
      {"cells", cells},
      {"failed_in_b", {{"runs", comparison.broken}, {"reasons", comparison.reasons}}},
      {"notes", comparison.notes},
      {"regressions", comparison.regressions()}};
}

}  // namespace bnlab
