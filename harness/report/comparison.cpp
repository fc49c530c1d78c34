#include "harness/report/comparison.hpp"

#include <algorithm>
#include <cmath>

#include "harness/experiment/measures.hpp"
#include "harness/report/report.hpp"

namespace bnlab {
namespace {

// The headline, and the costs that are compared.
std::vector<Measure> compared_measures(const std::string& headline) {
  std::vector<Measure> all = {measure_of(headline)};
  std::ranges::copy_if(measures(), std::back_inserter(all), &Measure::compared);
  return all;
}

Change judged(const Interval& difference, double margin, bool more_is_better) {
  const double low = difference.mean - difference.half_width, high = difference.mean + difference.half_width;
  if (difference.n < 2) return difference.mean == 0 ? Change::equal : Change::undecided;
  if (low >= -margin && high <= margin) return Change::equal;
  if (low > margin) return more_is_better ? Change::better : Change::worse;
  if (high < -margin) return more_is_better ? Change::worse : Change::better;
  return Change::undecided;
}

std::optional<ComparedMetric> compared(const Measure& measure, const std::vector<const RunPair*>& pairs,
                                       double tolerance) {
  std::vector<double> before, after, differences;
  for (const RunPair* pair : pairs) {
    const auto a = metric_of(*pair->a, measure.key, "saved"), b = metric_of(*pair->b, measure.key, "saved");
    const bool is_beside_another =
        measure.is_logarithm && pair->a->at("spec.timing.against") != pair->b->at("spec.timing.against");
    if (!a || !b || is_beside_another) continue;
    before.push_back(*a);
    after.push_back(*b);
    differences.push_back(*b - *a);
  }
  if (differences.empty()) return std::nullopt;
  ComparedMetric result{.metric = measure.key,
                        .a = t_interval(before),
                        .b = t_interval(after),
                        .difference = t_interval(differences)};
  const double whole = measure.is_logarithm ? 1 : std::abs(result.a.mean);
  const double margin = is_cost(measure.key) ? tolerance * whole : 0;
  result.change = judged(result.difference, margin, measure.more_is_better);
  return result;
}

std::string headline_of(const std::vector<RunPair>& pairs) {
  for (const RunPair& pair : pairs) {
    const Json& headline = pair.a->at("result.headline");
    if (headline.is_string()) return headline.get<std::string>();
  }
  return "mean_iou";
}

}  // namespace

bool ComparedMetric::overlaps() const {
  return std::abs(a.mean - b.mean) <= a.half_width + b.half_width;
}

Comparison::Repeated Comparison::repeated() const {
  Repeated repeated;
  for (const ComparedCell& cell : cells) {
    const auto timed = std::ranges::find(cell.metrics, kLogImagesPerS, &ComparedMetric::metric);
    if (timed == cell.metrics.end()) continue;
    ++repeated.cells;
    repeated.within += std::abs(std::exp(timed->b.mean) - std::exp(timed->a.mean)) <= kRepeats;
    repeated.overlapping += timed->overlaps();
  }
  return repeated;
}

std::optional<int> Comparison::regressions() const {
  if (std::ranges::any_of(spec, [](const DifferingKey& key) { return key.key != kPlacementKey; }))
    return std::nullopt;
  int count = broken;
  for (const ComparedCell& cell : cells)
    count += static_cast<int>(std::ranges::count(cell.metrics, Change::worse, &ComparedMetric::change));
  return count;
}

Comparison compare(const std::vector<Record>& a, const std::vector<Record>& b, double tolerance) {
  const ComparedSide of_a(a), of_b(b);
  Comparison comparison;
  comparison.spec = differing_keys(of_a, of_b);
  comparison.environment = differing_facts(of_a, of_b);
  comparison.runs_a = static_cast<int>(of_a.records.size());
  comparison.runs_b = static_cast<int>(of_b.records.size());
  const std::vector<RunPair> all = pairs_of(of_a, of_b, comparison.spec);
  comparison.pairs = static_cast<int>(all.size());
  const std::set<std::string> telling = telling_keys(all);
  std::vector<std::pair<std::string, std::vector<const RunPair*>>> cells;  // by name, in the order of A
  std::vector<Failure> failures;
  int disturbed = 0;
  for (const RunPair& pair : all) {
    if (pair.a->status() == Status::ok && pair.b->failed()) add_failure(*pair.b, failures);
    if (pair.a->status() != Status::ok || pair.b->status() != Status::ok) continue;
    disturbed += !pair.a->throughput_counts() || !pair.b->throughput_counts();
    const std::string name = cell_name(pair, telling);
    auto cell = std::ranges::find(cells, name, [](const auto& each) { return each.first; });
    if (cell == cells.end()) cell = cells.insert(cells.end(), {name, {}});
    cell->second.push_back(&pair);
  }
  const std::vector<Measure> measured = compared_measures(headline_of(all));
  for (const auto& [name, pairs] : cells) {
    ComparedCell cell{name, {}};
    for (const Measure& measure : measured)
      if (auto result = compared(measure, pairs, tolerance)) cell.metrics.push_back(std::move(*result));
    comparison.cells.push_back(std::move(cell));
  }
  for (const Failure& failure : failures) comparison.broken += failure.runs;
  comparison.reasons = failure_lines(failures);
  if (disturbed > 0) {
    std::vector<std::string> times;
    for (const Measure& measure : measured)
      if (is_throughput(measure.key) && !measure.is_logarithm) times.push_back(measure.key);
    comparison.notes.push_back(joined(times, " and ") + " of " + std::to_string(disturbed) +
                               " pairs are not compared: towers shared a rank, or others the machine.");
  }
  return comparison;
}

}  // namespace bnlab
