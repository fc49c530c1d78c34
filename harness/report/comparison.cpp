#include "harness/report/comparison.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "harness/mapped.hpp"
#include "harness/report/cell_records.hpp"
#include "harness/report/failures.hpp"

namespace bnlab {
namespace {

std::string value_of_key(const RunPair& pair, const std::string& key) {
  const auto entry = pair.common.find(key);
  return entry == pair.common.end() ? "" : entry->second;
}

constexpr std::array<const char*, 3> kNamedFirst = {"strategy", "towers", "batch_per_tower"};

// How many cells those keys tell apart.
size_t cells_told_apart(const std::vector<RunPair>& pairs, const std::set<std::string>& keys) {
  std::set<std::vector<std::string>> cells;
  for (const RunPair& pair : pairs) {
    std::vector<std::string> values;
    for (const char* key : kNamedFirst) values.push_back(value_of_key(pair, key));
    for (const std::string& key : keys) values.push_back(value_of_key(pair, key));
    cells.insert(std::move(values));
  }
  return cells.size();
}

// The keys beside those that are named first which a cell's name needs: not those that move together with others.
std::set<std::string> telling_keys(const std::vector<RunPair>& pairs) {
  std::set<std::string> keys;
  for (const RunPair& pair : pairs) {
    for (const auto& [key, value] : pair.common) keys.insert(key);
  }
  for (const char* key : kNamedFirst) keys.erase(key);
  keys.erase("seed");
  const size_t all = cells_told_apart(pairs, keys);
  for (const std::string& key : std::set<std::string>(keys)) {
    keys.erase(key);
    if (cells_told_apart(pairs, keys) < all) keys.insert(key);
  }
  return keys;
}

std::string cell_name(const RunPair& pair, const std::set<std::string>& telling) {
  std::string name = value_of_key(pair, "strategy");
  const std::string towers = value_of_key(pair, "towers"), batch = value_of_key(pair, "batch_per_tower");
  if (!towers.empty() && !batch.empty()) name += (name.empty() ? "" : " ") + towers + "x" + batch;
  for (const std::string& key : telling) {
    name += (name.empty() ? "" : ", ") + key + "=" + value_of_key(pair, key);
  }
  return name.empty() ? "all" : name;
}

using Number = std::function<std::optional<double>(const Record&)>;

struct Metric {
  std::string name;
  Number number;
  bool more_is_better;
  bool is_cost;  // the tolerance counts for it
};

std::vector<Metric> metrics_of(const std::string& headline) {
  const auto of = [](const std::string& metric) {
    return [metric](const Record& record) { return metric_of(record, metric, "saved"); };
  };
  const Number step_time = [](const Record& record) {
    return record.throughput_counts() ? record.number("result.throughput.step_time_s.median") : std::nullopt;
  };
  return {{headline, of(headline), headline.find("loss") == std::string::npos, false},
          {"images_per_s", of("images_per_s"), true, true},
          {"step_time_s", step_time, false, true},
          {"peak_memory_bytes", of("peak_memory_bytes"), false, true}};
}

Change judged(const Interval& difference, double margin, bool more_is_better) {
  const double low = difference.mean - difference.half_width, high = difference.mean + difference.half_width;
  if (difference.n < 2) return difference.mean == 0 ? Change::equal : Change::undecided;
  if (low >= -margin && high <= margin) return Change::equal;
  if (low > margin) return more_is_better ? Change::better : Change::worse;
  if (high < -margin) return more_is_better ? Change::worse : Change::better;
  return Change::undecided;
}

std::optional<ComparedMetric> compared(const Metric& metric, const std::vector<const RunPair*>& pairs,
                                       double tolerance) {
  std::vector<double> before, after, differences;
  for (const RunPair* pair : pairs) {
    const auto a = metric.number(*pair->a), b = metric.number(*pair->b);
    if (!a || !b) continue;
    before.push_back(*a);
    after.push_back(*b);
    differences.push_back(*b - *a);
  }
  if (differences.empty()) return std::nullopt;
  ComparedMetric result{metric.name, mean(before), mean(after), t_interval(differences), {}};
  const double margin = metric.is_cost ? tolerance * std::abs(result.a) : 0;
  result.change = judged(result.difference, margin, metric.more_is_better);
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

int Comparison::regressions() const {
  int count = broken;
  for (const ComparedCell& cell : cells) {
    count += static_cast<int>(std::ranges::count(cell.metrics, Change::worse, &ComparedMetric::change));
  }
  return count;
}

Comparison compare(const std::vector<Record>& a, const std::vector<Record>& b, double tolerance) {
  const Pairing pairing = pair_runs(a, b);
  Comparison comparison;
  comparison.spec = pairing.spec;
  comparison.environment = pairing.environment;
  comparison.runs_a = pairing.runs_a;
  comparison.runs_b = pairing.runs_b;
  comparison.pairs = static_cast<int>(pairing.pairs.size());
  const std::set<std::string> telling = telling_keys(pairing.pairs);
  std::vector<std::pair<std::string, std::vector<const RunPair*>>> cells;  // by name, in the order of A
  std::vector<Failure> failures;
  int disturbed = 0;
  for (const RunPair& pair : pairing.pairs) {
    if (pair.a->status() == Status::ok && pair.b->failed()) add_failure(*pair.b, failures);
    if (pair.a->status() != Status::ok || pair.b->status() != Status::ok) continue;
    disturbed += !pair.a->throughput_counts() || !pair.b->throughput_counts();
    const std::string name = cell_name(pair, telling);
    auto cell = std::ranges::find(cells, name, [](const auto& each) { return each.first; });
    if (cell == cells.end()) cell = cells.insert(cells.end(), {name, {}});
    cell->second.push_back(&pair);
  }
  const std::vector<Metric> metrics = metrics_of(headline_of(pairing.pairs));
  for (const auto& [name, pairs] : cells) {
    ComparedCell cell{name, {}};
    for (const Metric& metric : metrics) {
      if (auto result = compared(metric, pairs, tolerance)) cell.metrics.push_back(std::move(*result));
    }
    comparison.cells.push_back(std::move(cell));
  }
  for (const Failure& failure : failures) comparison.broken += failure.runs;
  comparison.reasons = failure_lines(failures);
  if (disturbed > 0) {
    comparison.notes.push_back("images_per_s and step_time_s of " + std::to_string(disturbed) +
                               " pairs are not compared: towers shared a rank, or other runs the machine.");
  }
  return comparison;
}

}  // namespace bnlab
