#include "harness/numerics/panel.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>
#include <texts/panel_entries.hpp>
#include <texts/panel_values.hpp>
#include <unordered_map>

#include "harness/components/registry.hpp"
#include "harness/experiment/document.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/fingerprint.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/revision.hpp"

namespace bnlab {
namespace {

constexpr const char* kBase = "base";
constexpr const char* kSources = "sources of ";  // in front of a part that cmake/fingerprint.py prints
constexpr const char* kGpuSources = "cuda";

// ---- the entries

std::vector<PanelEntry> read_entries() {
  const Json file = Json::parse(kPanelEntries);
  std::vector<PanelEntry> entries;
  PanelEntry base;
  base.keys = file.at("base");
  for (const auto& [name, given] : file.at("entries").items()) {
    const std::string on = given.value("on", "");
    const auto below = std::ranges::find(entries, on, &PanelEntry::name);
    if (!on.empty() && below == entries.end())
      throw Error(Error::Kind::usage, "the panel has no entry \"" + on + "\" before \"" + name + "\"");
    PanelEntry entry = on.empty() ? base : *below;
    entry.name = name;
    entry.on = on;
    entry.shared = given.value("shared", false);
    entry.stands_for = given.value("stands_for", Json());
    entry.ranks = given.value("ranks", entry.ranks);
    entry.reads_files = given.value("reads_files", entry.reads_files);
    entry.keys = laid_over(entry.keys, given.value("spec", Json::object()));
    entries.push_back(std::move(entry));
  }
  return entries;
}

// ---- what an entry stands for

bool is_component(const Json& value) {
  return value.is_object() && value.contains("name");
}

// "sorted" of "sorted:class", "tower" of "tower:1".
std::string kind_of(const std::string& text) {
  return text.substr(0, text.find(':'));
}

// What lists of texts have more than those below.
Json added(const Json& below, const Json& value) {
  for (const Json& text : value) {
    if (!text.is_string() || std::ranges::count(below, text) > 0) continue;
    return {{"has", kind_of(text.get<std::string>())}};
  }
  return {{"not", below}};
}

Json condition(const Json& below, const Json& value) {
  if (value.is_boolean() || value.is_null()) return value;
  if (value.is_string()) return kind_of(value.get<std::string>());
  return value.is_array() && below.is_array() ? added(below, value) : Json({{"not", below}});
}

void add_conditions(const Json& below, const Json& ours, const std::string& path, Json& conditions) {
  for (const auto& [key, value] : ours.items()) {
    const std::string at = path.empty() ? key : path + "." + key;
    const Json there = below.is_object() && below.contains(key) ? below.at(key) : Json();
    if (value == there) continue;
    if (is_component(value) && is_component(there) && value.at("name") != there.at("name"))
      conditions[at + ".name"] = value.at("name");
    else if (value.is_object() && there.is_object() && !value.empty() && !there.empty())
      add_conditions(there, value, at, conditions);
    else
      conditions[at] = condition(there, value);
  }
}

// The names of the components whose options these conditions are about.
void add_owners(const Json& ours, Json& conditions) {
  Json owners = Json::object();
  for (const auto& [path, unused] : conditions.items()) {
    for (std::string owner = path; owner.find('.') != std::string::npos;) {
      owner = owner.substr(0, owner.rfind('.'));
      const Json* component = find(ours, owner);
      if (component == nullptr || !is_component(*component)) continue;
      owners[owner + ".name"] = component->at("name");
      break;
    }
  }
  conditions.update(owners);
}

void add_names(const Json& below, const Json& ours, const std::string& path, Json& conditions) {
  for (const auto& [key, value] : ours.items()) {
    const Json there = below.is_object() && below.contains(key) ? below.at(key) : Json();
    const std::string at = path.empty() ? key : path + "." + key;
    if (!is_component(value)) continue;
    if (is_component(there) && value.at("name") == there.at("name"))
      add_names(there, value, at, conditions);
    else if (is_component(there))
      conditions[at + ".name"] = value.at("name");
  }
}

// ---- whether a run has it

using Leaves = std::unordered_map<std::string, const Json*>;  // what stands at each dotted key; borrows

void add_leaves(const Json& value, const std::string& path, Leaves& leaves) {
  if (!path.empty()) leaves[path] = &value;
  if (!value.is_object()) return;
  for (const auto& [key, entry] : value.items())
    add_leaves(entry, path.empty() ? key : path + "." + key, leaves);
}

bool holds(const Json& wanted, const Json& value) {
  if (wanted.is_object()) {
    if (wanted.contains("not")) return value != wanted.at("not");
    return std::ranges::any_of(value, [&](const Json& text) {
      return text.is_string() && kind_of(text.get<std::string>()) == wanted.at("has");
    });
  }
  return value.is_string() && wanted.is_string() ? kind_of(value.get<std::string>()) == wanted
                                                 : value == wanted;
}

bool has(const Json& conditions, const Leaves& run) {
  const auto& items = conditions.items();
  return std::all_of(items.begin(), items.end(), [&](const auto& condition) {
    const auto found = run.find(condition.key());
    return found != run.end() && holds(condition.value(), *found->second);
  });
}

// The run with its strategy, with the one that this is built on, and so on. Borrows from `spec`.
std::vector<Leaves> with_each_strategy(const Json& spec) {
  Leaves rest;
  for (const auto& [key, value] : spec.items())
    if (key != "strategy") add_leaves(value, key, rest);
  std::vector<Leaves> all;
  const Json* strategy = spec.contains("strategy") ? &spec.at("strategy") : nullptr;
  while (strategy != nullptr && is_component(*strategy)) {
    all.push_back(rest);
    add_leaves(*strategy, "strategy", all.back());
    strategy = strategy->contains("base") ? &strategy->at("base") : nullptr;
  }
  return all.empty() ? std::vector{rest} : all;
}

// ---- sources

// Fingerprints by name, as cmake/fingerprint.py prints them.
const std::map<std::string, std::string>& sources() {
  static const auto all = [] {
    std::map<std::string, std::string> found;
    std::istringstream words(kRevision.fingerprints);
    for (std::string name, print; words >> name >> print;) found[name] = print;
    return found;
  }();
  return all;
}

// The names of components in a run's keys, where they may be written short: "strategy": "sync".
void add_component_names(const std::string& key, const Json& value, std::set<std::string>& names) {
  static const std::set<std::string> kinds{"strategy", "base", "model",   "backbone",
                                           "task",     "loss", "augment", "optimizer"};
  if (value.is_string() && kinds.contains(key)) names.insert(value.get<std::string>());
  if (!value.is_object()) return;
  if (is_component(value)) names.insert(value.at("name").get<std::string>());
  for (const auto& [below, entry] : value.items()) add_component_names(below, entry, names);
}

// All that stand in the panel.
const std::set<std::string>& names_in_panel() {
  static const auto all = [] {
    std::set<std::string> names;
    for (const PanelEntry& entry : panel()) add_component_names("", entry.keys, names);
    return names;
  }();
  return all;
}

std::map<std::string, std::string> entries_today() {
  std::map<std::string, std::string> all;
  for (const auto& [name, entry] : committed_panel().items())
    all[name] = fingerprint(entry.at("values").dump());
  return all;
}

std::string hash_today(const std::string& part) {
  static const std::map<std::string, std::string> entries = entries_today();
  if (const auto found = entries.find(part); found != entries.end()) return found->second;
  if (part.starts_with(kSources)) {
    const auto found = sources().find(part.substr(std::string(kSources).size()));
    if (found != sources().end()) return found->second;
    return sources().at("shared");  // others can use what its file defines
  }
  return "";
}

// ---- how near numbers must be

// What another processor's rounding may move a number by after a few steps, relative to 1 + its size. In
// float64 another formula moves it by far more. Below float64 a pixel or two may get another class.
double tolerance_of(const Json& keys, const std::string& number) {
  const std::string precision = keys.value("precision", "float32");
  if (precision == "float64") return 1e-7;
  const bool counts = number.ends_with("_iou") || number.ends_with("_accuracy") || number.ends_with("top1");
  return counts || precision != "float32" ? 5e-2 : 2e-3;
}

}  // namespace

const std::vector<PanelEntry>& panel() {
  static const std::vector<PanelEntry> entries = read_entries();
  return entries;
}

const PanelEntry& panel_entry(const std::string& name) {
  const auto found = std::ranges::find(panel(), name, &PanelEntry::name);
  if (found == panel().end()) {
    throw Error(Error::Kind::usage,
                "the panel has no entry \"" + name + "\"" +
                    suggestion(name, mapped(panel(), [](const auto& e) { return e.name; })));
  }
  return *found;
}

Json stands_for(const PanelEntry& entry) {
  Json conditions = Json::object();
  if (entry.name == kBase) return conditions;
  if (entry.stands_for.is_object()) return entry.stands_for;
  const Json ours = read_resolved(entry.keys).resolved;
  const Json below = read_resolved(panel_entry(entry.on.empty() ? kBase : entry.on).keys).resolved;
  if (entry.on.empty()) {
    add_names(below, ours, "", conditions);
  } else {
    add_conditions(below, ours, "", conditions);
    if (!entry.shared) add_owners(ours, conditions);
  }
  if (conditions.empty())
    throw Error(Error::Kind::usage, "entry \"" + entry.name + "\" of the panel varies nothing");
  return conditions;
}

const Json& committed_panel() {
  static const Json all = Json::parse(kPanelValues);
  return all;
}

std::vector<std::string> panel_differences(const PanelEntry& entry, const Json& values) {
  const Json nothing = Json::object();
  const Json& all = committed_panel();
  const Json& committed = all.contains(entry.name) ? all.at(entry.name).at("values") : nothing;
  std::vector<std::string> differing;
  for (const auto& [name, value] : values.items()) {
    const Json then = committed.value(name, Json());
    const bool numbers = value.is_number() && then.is_number();
    const double a = numbers ? value.get<double>() : 0, b = numbers ? then.get<double>() : 0;
    if (numbers ? !(std::abs(a - b) <= tolerance_of(entry.keys, name) * (1 + std::abs(b))) : value != then) {
      differing.push_back(name + " is " + value.dump() + ", " + (then.is_null() ? "nothing" : then.dump()) +
                          " is committed");
    }
  }
  for (const auto& [name, then] : committed.items())
    if (!values.contains(name)) differing.push_back(name + " is gone");
  return differing;
}

Json numerics_of(const Json& spec, const std::string& device) {
  Json parts = Json::object();
  const std::vector<Leaves> runs = with_each_strategy(spec);
  for (const auto& [name, entry] : committed_panel().items()) {
    const Json& conditions = entry.at("stands_for");
    if (std::ranges::any_of(runs, [&](const Leaves& run) { return has(conditions, run); }))
      parts[name] = hash_today(name);
  }
  std::set<std::string> unknown;
  for (const char* key : {"strategy", "model", "task", "optimizer"})
    if (spec.contains(key)) add_component_names(key, spec.at(key), unknown);
  std::erase_if(unknown, [](const std::string& name) { return names_in_panel().contains(name); });
  if (device != "cpu") unknown.insert(kGpuSources);
  for (const std::string& name : unknown) parts[kSources + name] = hash_today(kSources + name);
  return parts;
}

bool same_numerics(const Json& a, const Json& b) {
  const auto& items = a.items();
  return std::all_of(items.begin(), items.end(), [&](const auto& part) {
    return !b.contains(part.key()) || b.at(part.key()) == part.value();
  });
}

std::string changed_numerics(const Json& numerics) {
  std::vector<std::string> changed;
  for (const auto& [part, hash] : numerics.items())
    if (hash_today(part) != hash) changed.push_back(part);
  return joined(changed);
}

}  // namespace bnlab
