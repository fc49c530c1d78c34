#include "harness/records/cell_records.hpp"

#include <algorithm>

#include "harness/records/cells.hpp"

namespace bnlab {
namespace {

std::optional<double> largest(const Json& of_ranks) {
  std::optional<double> peak;
  for (const Json& bytes : of_ranks) {
    if (bytes.is_number()) peak = std::max(peak.value_or(0), bytes.get<double>());
  }
  return peak;
}

}  // namespace

std::vector<double> without_seeds(const SeedValues& values) {
  std::vector<double> plain;
  for (const auto& [seed, value] : values) plain.push_back(value);
  return plain;
}

std::vector<const Record*> CellRecords::one_per_seed() const {
  const auto rank = [](const Record* record) {
    return std::pair(record->status() != Status::ok, record->at("placement.emulated") != false);
  };
  std::map<uint64_t, const Record*> chosen;
  for (const auto& [placement, records] : placements) {
    for (const Record* record : records) {
      const auto [best, is_new] = chosen.try_emplace(record->seed(), record);
      if (!is_new && rank(record) < rank(best->second)) best->second = record;
    }
  }
  std::vector<const Record*> records;
  for (const auto& [seed, record] : chosen) records.push_back(record);
  return records;
}

std::optional<double> metric_of(const Record& record, const std::string& metric,
                                const std::string& population) {
  if (record.status() != Status::ok) return std::nullopt;
  if (metric == "images_per_s") {
    return record.throughput_counts() ? record.number("result.throughput.images_per_s") : std::nullopt;
  }
  if (metric == "peak_memory_bytes" || metric == "peak_rss_bytes") {
    return largest(record.at("result.memory." + metric));
  }
  // A strategy without running statistics is evaluated once, as "saved": it knows no other population.
  const Json& asked = record.at("spec.populations");
  const bool known = record.at("result.final." + population).is_object() ||
                     std::find(asked.begin(), asked.end(), population) == asked.end();
  return record.number("result.final." + (known ? population : "saved") + "." + metric);
}

SeedValues values_by_seed(const std::vector<const Record*>& records,
                          const std::function<std::optional<double>(const Record&)>& number) {
  SeedValues values;
  for (const Record* record : records) {
    if (record->status() != Status::ok) continue;
    if (const auto value = number(*record)) values.emplace_back(record->seed(), *value);
  }
  std::sort(values.begin(), values.end());
  return values;
}

SeedValues values_by_seed(const std::vector<const Record*>& records, const std::string& metric,
                          const std::string& population) {
  return values_by_seed(records, [&](const Record& record) { return metric_of(record, metric, population); });
}

std::vector<CellRecords> collect_cells(const Experiment& experiment, const std::vector<Record>& records,
                                       RunCounts& counts) {
  const Cells cells(experiment);
  std::vector<CellRecords> all;
  std::map<std::vector<std::string>, size_t> known;
  const auto index = by_run_id(records);
  for (const RunSpec& run : experiment.runs) {
    const auto [entry, is_new] = known.try_emplace(cells.texts(run), all.size());
    if (is_new) {
      all.push_back({entry->first, label(run.strategy), cells.group(run), cells.conditions(run), {}, {}});
    }
    CellRecords& cell = all[entry->second];
    cell.runs.push_back(&run);
    ++counts.asked;
    const auto found = index.find(run.id);
    if (found == index.end()) continue;
    bool finished = false, ok = false, stale = false;
    for (const Record* record : found->second) {
      if (!is_of(*record, run) || !record->finished()) continue;
      cell.placements[record->placement()].push_back(record);
      finished = true;
      ok = ok || record->status() == Status::ok;
      stale = stale || record->stale();
    }
    counts.finished += finished;
    counts.failed += finished && !ok;
    counts.stale += stale;
  }
  return all;
}

}  // namespace bnlab
