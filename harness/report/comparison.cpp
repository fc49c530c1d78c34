#include "harness/report/comparison.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/report/report.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

void add_facts(const Json& value, const std::string& key, Facts& facts) {
  if (!value.is_object()) {
    facts[key].insert(value.is_string() ? value.get<std::string>() : value.dump());
    return;
  }
  for (const auto& [name, entry] : value.items())
    add_facts(entry, key.empty() ? name : key + "." + name, facts);
}

// What a run is paired by: the keys of its spec that change results, each with its value, and its placement.
using RunIdentity = std::map<std::string, std::string>;

struct RunPair {
  const Record* a;
  const Record* b;
  RunIdentity common;  // without the keys in which the folders differ as a whole
};

constexpr const char* kPlacementKey = "placement";

std::string identity_text(const std::string& key, const Json& value) {
  const Json& named = value_at(value, "name");
  const std::string family = family_at(key), name = named.is_string() ? named.get<std::string>() : "";
  if (find_registered(family, name) != nullptr) return label(value, family);
  if (!name.empty() && value.size() == 1) return name;
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// With the defaults of this program filled in, so that a key that one record lacks is no difference; a spec
// that this program cannot read stays as it is.
Json complete_spec(const Record& record) {
  try {
    return read_resolved(record.at("spec")).resolved;
  } catch (const Error&) {
    return record.at("spec");
  }
}

RunIdentity identity_of(const Record& record) {
  RunIdentity identity;
  const Json spec = complete_spec(record);
  for (const auto& [key, value] : spec.items())
    if (changes_result(key)) identity[key] = identity_text(key, value);
  identity[kPlacementKey] = record.placement();
  return identity;
}

struct Side {
  std::vector<const Record*> records;
  std::vector<RunIdentity> identities;

  explicit Side(const std::vector<Record>& all) {
    for (const Record& record : all) {
      if (!record.finished()) continue;
      records.push_back(&record);
      identities.push_back(identity_of(record));
    }
  }
  std::set<std::string> values(const std::string& key) const {
    std::set<std::string> found;
    for (const RunIdentity& identity : identities) {
      const auto entry = identity.find(key);
      found.insert(entry == identity.end() ? "none" : entry->second);
    }
    return found;
  }
};

std::set<std::string> all_keys(const Side& a, const Side& b) {
  std::set<std::string> keys;
  for (const Side* side : {&a, &b}) {
    for (const RunIdentity& identity : side->identities)
      for (const auto& [key, value] : identity) keys.insert(key);
  }
  return keys;
}

// Keys that have one value in all of A and another in all of B. Seeds are never exchanged for each other.
std::vector<DifferingKey> differing_keys(const Side& a, const Side& b) {
  std::vector<DifferingKey> differing;
  for (const std::string& key : all_keys(a, b)) {
    DifferingKey compared{key, a.values(key), b.values(key)};
    const bool constant = compared.a.size() == 1 && compared.b.size() == 1;
    if (key != "seed" && constant && compared.a != compared.b) differing.push_back(std::move(compared));
  }
  return differing;
}

std::vector<RunPair> pairs_of(const Side& a, const Side& b, const std::vector<DifferingKey>& differing) {
  const auto common = [&](RunIdentity identity) {
    for (const DifferingKey& key : differing) identity.erase(key.key);
    return identity;
  };
  std::map<RunIdentity, const Record*> partners;
  for (size_t i = 0; i < b.records.size(); ++i) partners[common(b.identities[i])] = b.records[i];
  std::vector<RunPair> pairs;
  for (size_t i = 0; i < a.records.size(); ++i) {
    const RunIdentity identity = common(a.identities[i]);
    if (const auto found = partners.find(identity); found != partners.end())
      pairs.push_back({a.records[i], found->second, identity});
  }
  return pairs;
}

std::vector<DifferingKey> differing_facts(const Side& a, const Side& b) {
  const Facts of_a = facts_of(a.records), of_b = facts_of(b.records);
  std::map<std::string, DifferingKey> all;
  for (const auto& [key, values] : of_a) all[key] = {key, values, {}};
  for (const auto& [key, values] : of_b) {
    all[key].key = key;
    all[key].b = values;
  }
  std::vector<DifferingKey> differing;
  for (auto& [key, values] : all)
    if (values.a != values.b) differing.push_back(std::move(values));
  return differing;
}

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

// The keys beside those that are named first which a cell's name needs: not those that move together with
// others.
std::set<std::string> telling_keys(const std::vector<RunPair>& pairs) {
  std::set<std::string> keys;
  for (const RunPair& pair : pairs)
    for (const auto& [key, value] : pair.common) keys.insert(key);
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
  for (const std::string& key : telling)
    name += (name.empty() ? "" : ", ") + key + "=" + value_of_key(pair, key);
  return name.empty() ? "all" : name;
}

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
  ComparedMetric result{measure.key, t_interval(before), t_interval(after), t_interval(differences), {}};
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

Facts facts_of(const std::vector<const Record*>& records) {
  Facts facts;
  for (const Record* record : records) {
    add_facts(record->at("environment"), "", facts);
    add_facts(record->at("code"), "code", facts);
    if (record->at("inputs").is_object()) add_facts(record->at("inputs"), "inputs", facts);
    for (const char* key : {"threads_per_rank", "backend", "jobs"})
      add_facts(record->at("placement." + std::string(key)), key, facts);
  }
  return facts;
}

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
  const Side of_a(a), of_b(b);
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
