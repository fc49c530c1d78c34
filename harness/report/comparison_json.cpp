#include <cmath>

#include "harness/report/comparison.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

Json keys_json(const std::vector<DifferingKey>& keys) {
  return mapped(keys, [](const DifferingKey& key) {
    return Json{{"key", key.key}, {"a", Json(key.a)}, {"b", Json(key.b)}};
  });
}

Json half_width_json(const Interval& interval) {
  return std::isfinite(interval.half_width) ? Json(interval.half_width) : Json();
}

Json metric_json(const ComparedMetric& metric) {
  return {{"metric", metric.metric},
          {"n", metric.difference.n},
          {"a", metric.a.mean},
          {"a_half_width", half_width_json(metric.a)},
          {"b", metric.b.mean},
          {"b_half_width", half_width_json(metric.b)},
          {"difference", metric.difference.mean},
          {"half_width", half_width_json(metric.difference)},
          {"b_is", name_of(metric.change)},
          {"few_seeds", metric.few_seeds()}};
}

}  // namespace

Json comparison_json(const Comparison& comparison, std::optional<Change> only) {
  Json cells = Json::array();
  for (const ComparedCell& cell : comparison.cells) {
    Json metrics = Json::array();
    for (const ComparedMetric& metric : cell.metrics)
      if (!only || metric.change == *only) metrics.push_back(metric_json(metric));
    if (!metrics.empty()) cells.push_back({{"cell", cell.name}, {"metrics", metrics}});
  }
  const std::optional<int> regressions = comparison.regressions();
  return {
      {"runs_a", comparison.runs_a},
      {"runs_b", comparison.runs_b},
      {"pairs", comparison.pairs},
      {"differs", {{"spec", keys_json(comparison.spec)}, {"environment", keys_json(comparison.environment)}}},
      {"cells", cells},
      {"failed_in_b", {{"runs", comparison.broken}, {"reasons", comparison.reasons}}},
      {"notes", comparison.notes},
      {"regressions", regressions ? Json(*regressions) : Json()}};
}

}  // namespace bnlab
