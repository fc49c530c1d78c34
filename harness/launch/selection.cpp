#include "harness/launch/selection.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/store/environment.hpp"
#include "harness/support/error.hpp"
#include "harness/support/mapped.hpp"
#include "harness/support/random.hpp"

namespace bnlab {
namespace {

constexpr const char* kRun = "run";

struct Filter {
  std::string text, key;
  std::vector<std::string> values;
};

std::vector<std::string> split_outside_brackets(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : text) {
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    if (c == ',' && depth == 0)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

Filter parse(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    throw Error(Error::Kind::usage, "--only " + text + ": expected KEY=VALUE[,VALUE...]");
  return {text, text.substr(0, equals), split_outside_brackets(text.substr(equals + 1))};
}

// What a value on the command line may mean: the JSON that it spells (1e-1, true, null), or a text.
std::vector<Json> meanings(const std::string& text) {
  const Json spelt = Json::parse(text, nullptr, false);
  return spelt.is_discarded() ? std::vector<Json>{text} : std::vector<Json>{spelt, text};
}

bool fits(const RunSpec& run, const Filter& filter, const std::string& value) {
  if (filter.key == kRun) return run.id == value;
  const auto all = meanings(value);
  return std::ranges::any_of(all, [&](const Json& meaning) { return matches({{filter.key, meaning}}, run); });
}

bool is_any_seed(const Filter& filter) {
  return filter.text == "seed=any";
}

// Of each cell the run of one seed.
std::vector<RunSpec> one_of_each_cell(std::vector<RunSpec> runs) {
  std::map<std::string, std::vector<size_t>> cells;
  for (size_t i = 0; i < runs.size(); ++i) {
    Json cell = runs[i].with_placement();
    cell.erase("seed");
    cells[cell.dump()].push_back(i);
  }
  const std::string code = code_version().at("fingerprint");
  std::set<size_t> drawn;
  for (const auto& [cell, indices] : cells) {
    Stream stream(0, code + cell);
    drawn.insert(indices[static_cast<size_t>(stream.below(static_cast<int64_t>(indices.size())))]);
  }
  return mapped(drawn, [&](size_t i) { return std::move(runs[i]); });
}

// Every value must be there in some run: a mistyped one must not quietly select nothing.
void check(const Filter& filter, const std::vector<RunSpec>& runs) {
  const std::string where = "--only " + filter.text + ": ";
  if (filter.key != kRun && declarations(filter.key).empty())
    throw Error(Error::Kind::usage, where + filter.key + ": " + unknown_key(filter.key));
  for (const std::string& value : filter.values) {
    if (std::ranges::any_of(runs, [&](const RunSpec& run) { return fits(run, filter, value); })) continue;
    if (filter.key == kRun) {
      const auto ids = mapped(runs, &RunSpec::id);
      throw Error(Error::Kind::usage, where + "no run has the id " + value + suggestion(value, ids));
    }
    throw Error(Error::Kind::usage,
                where + no_match(filter.key, meanings(value)[0], mapped(runs, &RunSpec::with_placement)));
  }
}

bool fits(const RunSpec& run, const Filter& filter) {
  return is_any_seed(filter) || std::ranges::any_of(filter.values, [&](const std::string& value) {
           return fits(run, filter, value);
         });
}

// Filters that each fit some run may fit none together.
void check_together(const std::vector<Filter>& filters, const std::vector<RunSpec>& runs) {
  const auto fits_all = [&](const RunSpec& run) {
    return std::ranges::all_of(filters, [&](const Filter& filter) { return fits(run, filter); });
  };
  if (runs.empty() || std::ranges::any_of(runs, fits_all)) return;
  const auto texts = mapped(filters, [](const Filter& filter) { return "--only " + filter.text; });
  throw Error(Error::Kind::usage, joined(texts, " ") +
                                      ": no run fits all of these; several values of one key go into one "
                                      "filter, such as --only seed=0,1");
}

// "2/8" as (2, 8).
std::pair<size_t, size_t> read_slice(const std::string& text) {
  unsigned long part = 0, parts = 0;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%5lu/%5lu%c", &part, &parts, &rest) != 2 || part < 1 || part > parts)
    throw Error(Error::Kind::usage, "--slice " + text + ": expected I/N with I from 1 to N, such as 1/8");
  return {part, parts};
}

}  // namespace

std::vector<RunSpec> select_runs(std::vector<RunSpec> runs, const std::vector<std::string>& texts,
                                 const std::string& slice) {
  const auto [part, parts] = slice.empty() ? std::pair<size_t, size_t>(1, 1) : read_slice(slice);
  const std::vector<Filter> filters = mapped(texts, parse);
  for (const Filter& filter : filters)
    if (!is_any_seed(filter)) check(filter, runs);
  check_together(filters, runs);
  std::vector<RunSpec> selected;
  for (size_t i = part - 1; i < runs.size(); i += parts) selected.push_back(std::move(runs[i]));
  for (const Filter& filter : filters)
    std::erase_if(selected, [&](const RunSpec& run) { return !fits(run, filter); });
  return std::ranges::any_of(filters, is_any_seed) ? one_of_each_cell(std::move(selected)) : selected;
}

void check_before_tuning(const Experiment& experiment, const std::vector<std::string>& texts) {
  std::vector<Filter> filters = mapped(texts, parse);
  std::erase_if(filters, [&](const Filter& filter) {
    if (filter.key == kRun || (filter.key == "steps" && !experiment.tune->lengths.empty())) return true;
    for (const auto& tried : experiment.tune->grid.items())
      if ((tried.key() + ".").starts_with(filter.key + ".")) return true;
    return false;
  });
  for (const Filter& filter : filters)
    if (!is_any_seed(filter)) check(filter, experiment.runs);
  check_together(filters, experiment.runs);
}

}  // namespace bnlab
