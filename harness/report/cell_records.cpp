#include "harness/report/cell_records.hpp"

#include <algorithm>

#include "harness/mapped.hpp"

namespace bnlab {
SeedValues paired_differences(const SeedValues& a, const SeedValues& b) {
  SeedValues differences;
  for (const auto& [seed, value] : a) {
    const auto same = std::ranges::find(b, seed, &SeedValues::value_type::first);
    if (same != b.end()) differences.emplace_back(seed, value - same->second);
  }
  return differences;
}

std::vector<double> without_seeds(const SeedValues& values) {
  return mapped(values, [](const auto& entry) { return entry.second; });
}

std::set<uint64_t> stale_seeds(const std::vector<const Record*>& records) {
  std::set<uint64_t> seeds;
  for (const Record* record : records) {
    if (record->stale()) seeds.insert(record->seed());
  }
  return seeds;
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
  return mapped(chosen, [](const auto& entry) { return entry.second; });
}

bool CellRecords::lies_at(const Json& at) const {
  return std::ranges::any_of(runs, [&](const RunSpec* run) { return matches(at, *run); });
}

std::vector<const Record*> CellRecords::records_at(const Json& at,
                                                   const std::vector<const Record*>& records) const {
  std::vector<const Record*> there;
  std::ranges::copy_if(records, std::back_inserter(there), [&](const Record* record) {
    return std::ranges::any_of(runs,
                               [&](const RunSpec* run) { return is_of(*record, *run) && matches(at, *run); });
  });
  return there;
}

SeedValues values_by_seed(const std::vector<const Record*>& records,
                          const std::function<std::optional<double>(const Record&)>& number) {
  SeedValues values;
  for (const Record* record : records) {
    if (record->status() != Status::ok) continue;
    if (const auto value = number(*record)) values.emplace_back(record->seed(), *value);
  }
  std::ranges::sort(values);
  return values;
}

SeedValues values_by_seed(const std::vector<const Record*>& records, const std::string& metric,
                          const std::string& population) {
  return values_by_seed(records, [&](const Record& record) { return metric_of(record, metric, population); });
}

CellTable collect_cells(const Experiment& experiment, const std::vector<Record>& records) {
  CellTable table;
  table.axes = columns_of(experiment);
  table.columns = mapped(table.axes, &CellColumn::title);
  table.columns.push_back("strategy");
  std::map<std::vector<std::string>, size_t> known;
  auto index = by_run_id(records);
  for (const RunSpec& run : experiment.runs) {
    CellName name = name_of(run, table.axes);
    const auto [entry, is_new] = known.try_emplace(name.cell, table.cells.size());
    if (is_new) table.cells.push_back({std::move(name), {}, {}});
    CellRecords& cell = table.cells[entry->second];
    cell.runs.push_back(&run);
    for (const Record* record : index[run.id]) {
      if (is_of(*record, run) && record->finished()) cell.placements[record->placement()].push_back(record);
    }
  }
  return table;
}

}  // namespace bnlab
