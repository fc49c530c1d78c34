#include "harness/launch/selection.hpp"

#include <algorithm>
#include <set>

#include "harness/error.hpp"
#include "harness/records/record.hpp"

namespace bnlab {
namespace {

struct Filter {
  std::string text, key;
  std::vector<std::string> values;
};

std::vector<std::string> split_outside_brackets(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

Filter parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
    throw Error(Error::Kind::usage, "--only " + text + ": expected KEY=VALUE[,VALUE...]");
  }
  return {text, text.substr(0, equals), split_outside_brackets(text.substr(equals + 1))};
}

// The texts that a filter may use for what `run` has at `key`; empty if the run has no such key.
std::vector<std::string> texts_at(const RunSpec& run, const std::string& key) {
  if (key == "towers") {
    return {std::to_string(run.towers())};
  }
  if (key == "strategy") {
    return {label(run.strategy), run.strategy.at("name").get<std::string>()};
  }
  const Json& value = value_at(run.resolved, key);
  if (value.is_null()) {
    return {};
  }
  if (value.is_object()) {
    return {value.value("name", value.dump())};
  }
  return {value.is_string() ? value.get<std::string>() : value.dump()};
}

bool same_value(const std::string& asked, const std::string& present) {
  if (asked == present) {
    return true;
  }
  const Json a = Json::parse(asked, nullptr, false);  // 1e-1 is 0.1
  const Json b = Json::parse(present, nullptr, false);
  return a.is_number() && b.is_number() && a == b;
}

bool matches(const RunSpec& run, const std::string& key, const std::string& value) {
  const auto texts = texts_at(run, key);
  return std::any_of(texts.begin(), texts.end(), [&](const auto& text) { return same_value(value, text); });
}

// Every value must be there in some run: a mistyped one must not quietly select nothing.
void check(const Filter& filter, const std::vector<RunSpec>& runs) {
  std::set<std::string> present;
  std::vector<std::string> keys{"towers"};
  for (const RunSpec& run : runs) {
    const auto texts = texts_at(run, filter.key);
    present.insert(texts.begin(), texts.end());
    for (const auto& [key, value] : run.resolved.items()) {
      keys.push_back(key);
    }
  }
  if (present.empty()) {
    const std::string near = nearest(filter.key, keys);
    throw Error(Error::Kind::usage, "--only " + filter.text + ": no run has the key '" + filter.key + "'" +
                                        (near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  for (const std::string& value : filter.values) {
    if (std::none_of(runs.begin(), runs.end(),
                     [&](const auto& r) { return matches(r, filter.key, value); })) {
      std::string known;
      for (const std::string& text : present) {
        known += (known.empty() ? "" : ", ") + text;
      }
      throw Error(Error::Kind::usage, "--only " + filter.text + ": no run has " + filter.key + " '" + value +
                                          "'; there is " + known);
    }
  }
}

}  // namespace

std::vector<RunSpec> select_runs(const Experiment& experiment, const std::vector<std::string>& filters) {
  std::vector<RunSpec> runs = experiment.runs;
  for (const std::string& text : filters) {
    const Filter filter = parse(text);
    check(filter, experiment.runs);
    std::erase_if(runs, [&](const RunSpec& run) {
      return std::none_of(filter.values.begin(), filter.values.end(),
                          [&](const auto& value) { return matches(run, filter.key, value); });
    });
  }
  return runs;
}

}  // namespace bnlab
