#include "harness/launch/selection.hpp"

#include <algorithm>

#include "harness/error.hpp"
#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/mapped.hpp"

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
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
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

// What a value on the command line may mean: the JSON that it spells (1e-1, true, null), or a text.
std::vector<Json> meanings(const std::string& text) {
  const Json spelt = Json::parse(text, nullptr, false);
  return spelt.is_discarded() ? std::vector<Json>{text} : std::vector<Json>{spelt, text};
}

bool fits(const RunSpec& run, const Filter& filter, const std::string& value) {
  const auto all = meanings(value);
  return std::ranges::any_of(all, [&](const Json& meaning) { return matches({{filter.key, meaning}}, run); });
}

// Every value must be there in some run: a mistyped one must not quietly select nothing.
void check(const Filter& filter, const std::vector<RunSpec>& runs) {
  const std::string where = "--only " + filter.text + ": ";
  if (declarations(filter.key).empty()) {
    throw Error(Error::Kind::usage, where + filter.key + ": " + unknown_key(filter.key));
  }
  for (const std::string& value : filter.values) {
    if (std::ranges::any_of(runs, [&](const RunSpec& run) { return fits(run, filter, value); })) {
      continue;
    }
    throw Error(Error::Kind::usage,
                where + no_match(filter.key, meanings(value)[0], mapped(runs, &RunSpec::with_placement)));
  }
}

}  // namespace

std::vector<RunSpec> select_runs(const Experiment& experiment, const std::vector<std::string>& filters) {
  std::vector<RunSpec> runs = experiment.runs;
  for (const std::string& text : filters) {
    const Filter filter = parse(text);
    check(filter, experiment.runs);
    std::erase_if(runs, [&](const RunSpec& run) {
      return std::ranges::none_of(filter.values, [&](const auto& value) { return fits(run, filter, value); });
    });
  }
  return runs;
}

}  // namespace bnlab
