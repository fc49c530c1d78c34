#include "harness/report/cells.hpp"

#include <algorithm>
#include <set>

#include "harness/experiment/dotted.hpp"
#include "harness/store/records.hpp"
#include "harness/support/mapped.hpp"

namespace bnlab {
namespace {

constexpr const char* kGrouping = "towers x batch";  // the title of two axes in one column

// The keys of a matrix axis: "towers, batch_per_tower" names two that move together.
std::vector<std::string> keys_of(const std::string& axis) {
  std::vector<std::string> keys = split(axis, ',');
  for (std::string& key : keys) std::erase(key, ' ');
  return keys;
}

// "8x2" of the keys towers and batch_per_tower, whose values `value_of` knows.
template <class ValueOf>
std::string text_of(const std::vector<std::string>& keys, const ValueOf& value_of) {
  return joined(mapped(keys, [&](const std::string& key) { return text_at(key, value_of(key)); }), "x");
}

std::string with_title(const std::string& title, const std::string& text) {
  return title == kGrouping ? text : title + "=" + text;
}

void add_leaves(const Json& value, const std::string& key, std::vector<std::string>& leaves) {
  if (!value.is_object()) {
    if (std::ranges::find(leaves, key) == leaves.end()) leaves.push_back(key);
    return;
  }
  for (const auto& [name, entry] : value.items()) add_leaves(entry, key + "." + name, leaves);
}

// An axis of objects is shown by those of their entries that vary; components that differ in their name, or
// in more than one option, by their labels.
std::vector<std::string> columns_of_axis(const std::string& key, const std::vector<RunSpec>& runs) {
  if (key == "placement") return {"placement.ranks", "placement.device", "placement.exchange"};
  std::vector<std::string> leaves;
  for (const RunSpec& run : runs) add_leaves(run.value_at(key), key, leaves);
  if (leaves.size() < 2) return leaves;
  std::erase_if(leaves, [&](const std::string& leaf) {
    return std::ranges::all_of(
        runs, [&](const RunSpec& run) { return run.value_at(leaf) == runs[0].value_at(leaf); });
  });
  const bool one_option = leaves.size() == 1 && leaves[0] != key + ".name";
  if (!family_at(key).empty() && !one_option) return {key};
  return leaves;
}

template <class Property>
std::set<uint64_t> seeds_with(const std::vector<const Record*>& records, Property has) {
  std::set<uint64_t> seeds;
  for (const Record* record : records)
    if (has(*record)) seeds.insert(record->seed());
  return seeds;
}

}  // namespace

std::vector<CellColumn> columns_of(const Experiment& experiment) {
  std::set<std::string> all;
  for (const std::string& axis : experiment.axes)
    for (const std::string& key : keys_of(axis)) all.insert(key);
  const bool grouping = all.contains("towers") && all.contains("batch_per_tower");
  std::vector<CellColumn> columns;
  for (const std::string& axis : experiment.axes) {
    const std::vector<std::string> keys = keys_of(axis);
    const auto of_strategy = [](const std::string& key) { return lies_within(key, "strategy"); };
    const bool in_group = std::ranges::none_of(keys, of_strategy);
    for (const std::string& key : keys) {
      if (key == "seed" || of_strategy(key) || (grouping && key == "batch_per_tower")) continue;
      if (grouping && key == "towers") {
        columns.push_back({kGrouping, {"towers", "batch_per_tower"}, true});
        continue;
      }
      for (const std::string& leaf : columns_of_axis(key, experiment.runs))
        columns.push_back({leaf, {leaf}, in_group});
    }
  }
  return columns;
}

CellName name_of(const RunSpec& run, const std::vector<CellColumn>& columns) {
  CellName name;
  name.strategy = label(run.strategy);
  std::vector<std::string> group;
  for (const CellColumn& column : columns) {
    const std::string& title = column.title;
    name.cell.push_back(text_of(column.keys, [&](const std::string& key) { return run.value_at(key); }));
    if (!column.in_group) continue;
    group.push_back(with_title(title, name.cell.back()));
    const bool own = title == kGrouping || title == "towers" || title == "batch_per_tower" ||
                     lies_within(title, "placement");
    if (!own) name.conditions[title] = name.cell.back();
  }
  name.cell.push_back(name.strategy);
  name.group = group.empty() ? "all" : joined(group);
  return name;
}

std::string group_apart_from(const std::vector<std::string>& compared, const RunSpec& run,
                             const std::vector<CellColumn>& columns) {
  const Json rest = apart_from(run.with_placement(), compared);
  std::vector<std::string> group;
  for (const CellColumn& column : columns) {
    std::vector<std::string> keys = column.keys;
    std::erase_if(keys, [&](const std::string& key) { return find(rest, key) == nullptr; });
    const bool all = keys.size() == column.keys.size();
    if (!keys.empty()) {
      const std::string text = text_of(keys, [&](const std::string& key) { return *find(rest, key); });
      group.push_back(with_title(all ? column.title : keys[0], text));
    }
  }
  if (rest.contains("strategy")) group.push_back(label(rest["strategy"]));
  return group.empty() ? "all" : joined(group);
}

std::string text_at(const std::string& key, const Json& value) {
  if (value.is_null()) return "none";
  if (value.is_object() && value.contains("name")) return label(value, family_at(key));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

SeedValues pairwise(const SeedValues& a, const SeedValues& b,
                    const std::function<double(double, double)>& of) {
  SeedValues pairs;
  for (const auto& [seed, value] : a) {
    const auto same = std::ranges::find(b, seed, &SeedValues::value_type::first);
    if (same != b.end()) pairs.emplace_back(seed, of(value, same->second));
  }
  return pairs;
}

std::vector<double> without_seeds(const SeedValues& values) {
  return mapped(values, [](const auto& entry) { return entry.second; });
}

std::set<uint64_t> stale_seeds(const std::vector<const Record*>& records) {
  return seeds_with(records, [](const Record& record) { return record.stale(); });
}

std::set<uint64_t> stopped_seeds(const std::vector<const Record*>& records) {
  return seeds_with(records, [](const Record& record) { return !record.why_stopped_early().empty(); });
}

std::vector<const Record*> CellRecords::one_per_seed() const {
  std::map<uint64_t, const Record*> chosen;
  for (const auto& [placement, records] : placements) {
    for (const Record* record : records) {
      const auto [best, is_new] = chosen.try_emplace(record->seed(), record);
      if (!is_new && counts_before(*record, *best->second)) best->second = record;
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
    for (const Record* record : index[run.id])
      if (is_of(*record, run) && record->finished()) cell.placements[record->placement()].push_back(record);
  }
  return table;
}

}  // namespace bnlab
