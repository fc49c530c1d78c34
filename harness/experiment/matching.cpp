#include "harness/experiment/matching.hpp"

#include <algorithm>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/spec.hpp"

namespace bnlab {
namespace {

bool value_matches(const std::string& key, const Json& actual, const Json& wanted) {
  const bool component = actual.is_object() && actual.contains("name");
  if (component && wanted.is_string())
    return wanted == actual["name"] || wanted == label(actual, family_at(key));
  if (!actual.is_object() || !wanted.is_object()) return nlohmann::json(actual) == nlohmann::json(wanted);
  return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& entry) {
    const std::string& name = entry.key();
    return actual.contains(name) && value_matches(key + "." + name, actual[name], entry.value());
  });
}

bool key_matches(const Json& run, const std::string& key, const Json& wanted) {
  const Json* actual = find(run, key);
  return actual != nullptr && value_matches(key, *actual, wanted);
}

// The values that the runs have at a key, components by label, each once.
std::vector<std::string> values_at(const std::vector<Json>& runs, const std::string& key) {
  std::vector<std::string> values;
  for (const auto& run : runs) {
    const Json* value = find(run, key);
    if (value == nullptr) continue;
    const bool component = value->is_object() && value->contains("name");
    const std::string text = component || value->is_string() ? label(*value, family_at(key)) : shown(*value);
    if (std::ranges::find(values, text) == values.end()) values.push_back(text);
  }
  return values;
}

}  // namespace

bool matches(const Json& wanted, const Json& run) {
  return std::all_of(wanted.items().begin(), wanted.items().end(),
                     [&](const auto& entry) { return key_matches(run, entry.key(), entry.value()); });
}

bool matches(const Json& wanted, const RunSpec& run) {
  const auto keys = wanted.items();
  const bool places = std::any_of(keys.begin(), keys.end(),
                                  [](const auto& it) { return top_level(it.key()) == "placement"; });
  if (places) return matches(wanted, run.with_placement());
  return matches(wanted, run.resolved);  // which need not be copied
}

bool check_keys(const Json& wanted, const std::string& path, Mistakes& mistakes) {
  bool all_known = true;
  for (const auto& [key, unused] : wanted.items()) {
    if (declarations(key).empty()) {
      mistakes.add(key_path(path, key), unknown_key(key));
      all_known = false;
    }
  }
  return all_known;
}

std::vector<std::string> named_keys(const Json& rule) {
  std::vector<std::string> keys;
  for (const auto& [key, wanted] : rule.items()) {
    if (!wanted.is_object()) {
      keys.push_back(key);
      continue;
    }
    for (const std::string& below : named_keys(wanted)) keys.push_back(key + "." + below);
  }
  return keys;
}

std::string no_match(const std::string& key, const Json& wanted, const std::vector<Json>& runs) {
  if (std::ranges::any_of(runs, [&](const Json& run) { return key_matches(run, key, wanted); })) return "";
  const auto values = values_at(runs, key);
  const std::string near = wanted.is_string() ? nearest(wanted, values) : "";
  if (wanted == near)
    return "no run has the text " + shown(wanted) + "; write the value without quotes: " + near;
  return "no run has " + shown(wanted) +
         (near.empty() ? "; there are: " + (values.empty() ? "none" : joined(values))
                       : "; did you mean \"" + near + "\"?");
}

void report_no_match(const Json& wanted, const std::vector<Json>& runs, const std::string& path,
                     Mistakes& mistakes) {
  for (const auto& [key, value] : wanted.items()) {
    const std::string problem = no_match(key, value, runs);
    if (!problem.empty()) {
      mistakes.add(key_path(path, key), problem);
      return;
    }
  }
  mistakes.add(path, "no run matches all of its keys");
}

}  // namespace bnlab
