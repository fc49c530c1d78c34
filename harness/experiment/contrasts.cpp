// The comparisons that a spec declares beforehand, of two strategies or of runs that differ in other keys,
// checked against its matrix.
#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <tuple>

#include "harness/experiment/dotted.hpp"
#include "harness/experiment/matching.hpp"
#include "harness/experiment/matrix.hpp"
#include "harness/experiment/measures.hpp"

namespace bnlab {
namespace {

// The label of the strategy that `name` means: a label of the matrix, or a name that one label has; "" if
// there is none. `path` is that of the name.
std::string label_of(const std::string& name, const std::vector<Json>& runs, const std::string& path,
                     Mistakes& mistakes) {
  std::vector<std::string> labels, named;
  for (const auto& run : runs) {
    const std::string text = label(run["strategy"]);
    if (std::ranges::count(labels, text) > 0) continue;
    labels.push_back(text);
    if (run["strategy"]["name"] == name) named.push_back(text);
  }
  if (std::ranges::count(labels, name) > 0) return name;
  if (named.size() == 1) return named[0];
  mistakes.add(path, named.empty()
                         ? "no run has the strategy " + shown(name) + suggestion(name, labels)
                         : shown(name) + " is the name of several strategies" + suggestion("", named));
  return "";
}

// The runs of a side among those that match `at`; none is a mistake.
std::vector<Json> side_of(const Contrast& contrast, bool is_above, const std::vector<Json>& there,
                          const std::string& path, Mistakes& mistakes) {
  const std::string& strategy = is_above ? contrast.above : contrast.strategy;
  const Json& rule = is_above ? contrast.above_runs : contrast.runs;
  std::vector<Json> side;
  std::ranges::copy_if(there, std::back_inserter(side), [&](const Json& run) {
    return contrast.of_strategies() ? label(run["strategy"]) == strategy : matches(rule, run);
  });
  if (side.empty() && contrast.of_strategies())
    mistakes.add(path + ".at", "no run of " + strategy + " matches");
  else if (side.empty())
    report_no_match(rule, there, path + (is_above ? ".above_runs" : ".runs"), mistakes);
  return side;
}

// Whether rules tell sides apart whose runs differ in nothing else.
void check_pairs(const Contrast& contrast, const std::array<std::vector<Json>, 2>& sides,
                 const std::string& path, Mistakes& mistakes) {
  if (std::ranges::any_of(sides[0], [&](const Json& run) { return matches(contrast.above_runs, run); })) {
    mistakes.add(path, "expected other runs than those of runs, got some that are on both sides");
    return;
  }
  const auto keys = contrast.compared_keys();
  std::set<std::string> above;
  for (const Json& run : sides[1]) above.insert(apart_from(run, keys).dump());
  if (std::ranges::any_of(sides[0],
                          [&](const Json& run) { return above.contains(apart_from(run, keys).dump()); })) {
    return;
  }
  std::vector<std::string> others;
  const Json a = apart_from(sides[0][0], keys), b = apart_from(sides[1][0], keys);
  for (const auto& [key, value] : a.items())
    if (!b.contains(key) || b[key] != value) others.push_back(key);
  mistakes.add(path,
               "expected runs that differ from those of runs in the keys of both alone; name what "
               "else differs too: " +
                   joined(others));
}

void check_cells(const Contrast& contrast, const std::vector<Json>& runs, const std::string& path,
                 Mistakes& mistakes) {
  std::vector<Json> there;
  std::ranges::copy_if(runs, std::back_inserter(there),
                       [&](const Json& run) { return matches(contrast.at, run); });
  if (there.empty()) {
    report_no_match(contrast.at, runs, path + ".at", mistakes);
    return;
  }
  std::array<std::vector<Json>, 2> sides;
  for (const bool is_above : {false, true}) {
    sides[is_above] = side_of(contrast, is_above, there, path, mistakes);
    const std::string& population = is_above ? contrast.population_above() : contrast.population;
    for (const Json& run : sides[is_above]) {
      check_measured(contrast.metric, population, run, path, mistakes,
                     is_above && contrast.above_population ? "above_population" : "population");
    }
  }
  if (!contrast.of_strategies() && !sides[0].empty() && !sides[1].empty())
    check_pairs(contrast, sides, path + ".above_runs", mistakes);
}

// Metric and populations alone, for sides that are not known.
void check_numbers(const Contrast& contrast, const std::vector<Json>& runs, const std::string& path,
                   Mistakes& mistakes) {
  for (const Json& run : runs) {
    if (!matches(contrast.at, run)) continue;
    check_measured(contrast.metric, contrast.population, run, path, mistakes);
    if (contrast.above_population)
      check_measured(contrast.metric, *contrast.above_population, run, path, mistakes, "above_population");
  }
}

// Whether each part has a type that can be read; the others have been reported.
bool is_readable(const Json& given) {
  const auto all = [&](std::initializer_list<const char*> keys, auto holds) {
    return std::ranges::all_of(keys,
                               [&](const char* key) { return given.contains(key) && holds(given[key]); });
  };
  return all({"metric", "strategy", "above", "population"},
             [](const Json& value) { return value.is_string(); }) &&
         all({"at", "runs", "above_runs"}, [](const Json& value) { return value.is_object(); }) &&
         all({"above_population"}, [](const Json& value) { return value.is_null() || value.is_string(); }) &&
         all({"equivalence_margin"}, [](const Json& value) { return value.is_null() || value.is_number(); });
}

// Whether both sides are named, and in the same way.
bool names_sides(const Contrast& contrast) {
  const bool strategies = !contrast.strategy.empty() && !contrast.above.empty();
  const bool any_strategy = !contrast.strategy.empty() || !contrast.above.empty();
  return contrast.of_strategies() ? strategies
                                  : !any_strategy && !contrast.runs.empty() && !contrast.above_runs.empty();
}

// The labels of both strategies. Returns whether there are two, or one under two populations.
bool find_labels(Contrast& contrast, const std::vector<Json>& runs, const std::string& path,
                 Mistakes& mistakes) {
  contrast.strategy = label_of(contrast.strategy, runs, path + ".strategy", mistakes);
  contrast.above = label_of(contrast.above, runs, path + ".above", mistakes);
  contrast.declared_strategy = contrast.strategy;
  contrast.declared_above = contrast.above;
  const bool known = !contrast.strategy.empty() && !contrast.above.empty();
  if (known && contrast.strategy == contrast.above && contrast.population_above() == contrast.population) {
    mistakes.add(path + ".above",
                 "expected another strategy than " + contrast.strategy + ", or another above_population");
  }
  return known;
}

// Whether the rules of both sides can be matched against runs.
bool check_rules(const Contrast& contrast, const std::string& path, Mistakes& mistakes) {
  bool good = true;
  for (const bool is_above : {false, true}) {
    const Json& rule = is_above ? contrast.above_runs : contrast.runs;
    const std::string side = path + (is_above ? ".above_runs" : ".runs");
    good = check_keys(rule, side, mistakes) && good;
    for (const auto& [key, unused] : rule.items()) {
      const bool paired = key == "seed";
      if (paired || contrast.at.contains(key)) {
        mistakes.add(key_path(side, key), paired ? "runs of one seed are compared, and no seed with another"
                                                 : "stands in at too, which holds for both sides");
        good = false;
      }
    }
  }
  return good;
}

// Whether two contrasts compare the same, be it the other way round.
bool same_comparison(const Contrast& a, const Contrast& b) {
  const auto sides = [](const Contrast& contrast) {
    return std::array{std::tuple(contrast.strategy, contrast.runs, contrast.population),
                      std::tuple(contrast.above, contrast.above_runs, contrast.population_above())};
  };
  const auto of_a = sides(a), of_b = sides(b);
  return a.metric == b.metric && a.at == b.at && (of_a == of_b || (of_a[0] == of_b[1] && of_a[1] == of_b[0]));
}

void check_alone(const Contrast& contrast, const std::vector<Contrast>& before, const std::string& path,
                 Mistakes& mistakes) {
  if (!is_cost(contrast.metric) && contrast.equivalence_margin.value_or(0) >= 1) {
    mistakes.add(path + ".equivalence_margin", "expected a share below 1, 0.02 for two points, got " +
                                                   shown(Json(*contrast.equivalence_margin)));
  }
  const auto same =
      std::ranges::find_if(before, [&](const Contrast& other) { return same_comparison(contrast, other); });
  if (same != before.end()) {
    mistakes.add(path, "the same two sides are compared by contrasts[" +
                           std::to_string(same - before.begin()) + "]; a comparison counts once");
  }
}

// Whether nothing is wrong with the values that the contrast depends on.
bool rests_on_good(const Contrast& contrast, const std::set<std::string>& mistaken) {
  if (!contrast.of_strategies()) return mistaken.empty();
  return std::all_of(contrast.at.items().begin(), contrast.at.items().end(),
                     [&](const auto& entry) { return !mistaken.contains(top_level(entry.key())); }) &&
         !mistaken.contains("populations") && !mistaken.contains("towers");
}

}  // namespace

Json Contrast::rule(bool is_above) const {
  Json rule = at.is_null() ? Json::object() : at;
  for (const auto& [key, value] : (is_above ? above_runs : runs).items()) rule[key] = value;
  return rule;
}

std::vector<std::string> Contrast::compared_keys() const {
  std::vector<std::string> keys = named_keys(runs);
  for (const std::string& key : named_keys(above_runs))
    if (std::ranges::count(keys, key) == 0) keys.push_back(key);
  return keys;
}

std::vector<Contrast> read_contrasts(const Json& contrasts, const Json& written, const Expansion& expansion,
                                     Mistakes& mistakes) {
  std::vector<Contrast> found;
  if (expansion.cells.empty()) return found;  // a mistake in the matrix, which has been reported
  for (size_t i = 0; i < contrasts.size(); ++i) {
    if (!contrasts[i].is_object() || !is_readable(contrasts[i])) continue;
    const std::string path = "contrasts[" + std::to_string(i) + "]";
    auto contrast = read_options<Contrast>(contrasts[i]);
    contrast.as_written = written[i];
    if (!names_sides(contrast)) {
      mistakes.add(path, "expected strategy and above, or in their place runs and above_runs");
      continue;
    }
    const bool can_match = check_keys(contrast.at, path + ".at", mistakes);
    bool judged = can_match;
    if (!contrast.of_strategies())
      judged = check_rules(contrast, path, mistakes) && judged;
    else if (expansion.mistaken.contains("strategy"))
      judged = false;
    else
      judged = find_labels(contrast, expansion.cells, path, mistakes) && judged;
    if (can_match && rests_on_good(contrast, expansion.mistaken))
      (judged ? check_cells : check_numbers)(contrast, expansion.cells, path, mistakes);
    check_alone(contrast, found, path, mistakes);
    found.push_back(std::move(contrast));
  }
  return found;
}

}  // namespace bnlab
