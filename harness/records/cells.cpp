#include "harness/records/cells.hpp"

#include <algorithm>
#include <set>

#include "harness/experiment/dotted.hpp"
#include "harness/records/record.hpp"

namespace bnlab {
namespace {

constexpr const char* kGrouping = "towers x batch";  // the title of two axes in one column

// The keys of a matrix axis: "towers, batch_per_tower" names two that move together.
std::vector<std::string> keys_of(const std::string& axis) {
  std::vector<std::string> keys = split(axis, ',');
  for (std::string& key : keys) std::erase(key, ' ');
  return keys;
}

Json value_of(const RunSpec& run, const std::string& key) {
  return value_at(run.with_placement(), key);
}

std::string text_of(const Json& value) {
  if (value.is_null()) return "none";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void add_leaves(const Json& value, const std::string& key, std::vector<std::string>& leaves) {
  if (!value.is_object()) {
    if (std::find(leaves.begin(), leaves.end(), key) == leaves.end()) leaves.push_back(key);
    return;
  }
  for (const auto& [name, entry] : value.items()) add_leaves(entry, key + "." + name, leaves);
}

// An axis of objects is shown by those of their entries that vary.
std::vector<std::string> varying_leaves(const std::string& key, const std::vector<RunSpec>& runs) {
  if (key == "placement") return {"placement.ranks", "placement.device", "placement.exchange"};
  std::vector<std::string> leaves;
  for (const RunSpec& run : runs) add_leaves(value_of(run, key), key, leaves);
  if (leaves.size() < 2) return leaves;
  std::erase_if(leaves, [&](const std::string& leaf) {
    return std::all_of(runs.begin(), runs.end(),
                       [&](const RunSpec& run) { return value_of(run, leaf) == value_of(runs[0], leaf); });
  });
  return leaves;
}

}  // namespace

Cells::Cells(const Experiment& experiment) {
  std::set<std::string> all;
  for (const std::string& axis : experiment.axes) {
    for (const std::string& key : keys_of(axis)) all.insert(key);
  }
  const bool grouping = all.contains("towers") && all.contains("batch_per_tower");
  for (const std::string& axis : experiment.axes) {
    const std::vector<std::string> keys = keys_of(axis);
    const bool with_strategy =
        std::any_of(keys.begin(), keys.end(), [](const auto& key) { return lies_within(key, "strategy"); });
    for (const std::string& key : keys) {
      if (key == "seed" || lies_within(key, "strategy") || (grouping && key == "batch_per_tower")) continue;
      if (grouping && key == "towers") {
        columns_.push_back({kGrouping, [](const RunSpec& run) {
                              return text_of(value_of(run, "towers")) + "x" +
                                     text_of(value_of(run, "batch_per_tower"));
                            }});
      } else {
        add_axis(key, !with_strategy, experiment);
      }
    }
  }
  columns_.push_back({"strategy", [](const RunSpec& run) { return label(run.strategy); }, false});
}

void Cells::add_axis(const std::string& key, bool in_group, const Experiment& experiment) {
  for (const std::string& leaf : varying_leaves(key, experiment.runs)) {
    columns_.push_back({leaf, [leaf](const RunSpec& run) { return text_of(value_of(run, leaf)); }, in_group});
  }
}

std::vector<std::string> Cells::columns() const {
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  return titles;
}

std::vector<std::string> Cells::texts(const RunSpec& run) const {
  std::vector<std::string> texts;
  for (const Column& column : columns_) texts.push_back(column.text(run));
  return texts;
}

std::string Cells::group(const RunSpec& run) const {
  std::string group;
  for (const Column& column : columns_) {
    if (!column.in_group) continue;
    const std::string title = column.title == kGrouping ? "" : column.title + "=";
    group += (group.empty() ? "" : ", ") + title + column.text(run);
  }
  return group.empty() ? "all" : group;
}

std::map<std::string, std::string> Cells::conditions(const RunSpec& run) const {
  std::map<std::string, std::string> conditions;
  for (const Column& column : columns_) {
    const bool own = column.title == kGrouping || column.title == "towers" ||
                     column.title == "batch_per_tower" || lies_within(column.title, "placement");
    if (column.in_group && !own) conditions[column.title] = column.text(run);
  }
  return conditions;
}

}  // namespace bnlab
