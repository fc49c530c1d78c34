#include "harness/report/contrast_results.hpp"

#include <algorithm>
#include <cmath>

#include "harness/mapped.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

// Two cells that a contrast compares, and what they have in common.
struct Rivals {
  const CellRecords *a, *b;
  std::string group;
};

bool is_side(const CellRecords& cell, const Contrast& contrast, bool is_above) {
  const std::string& strategy = is_above ? contrast.above : contrast.strategy;
  return (!contrast.of_strategies() || cell.strategy == strategy) && cell.lies_at(contrast.rule(is_above));
}

std::vector<Rivals> rivals_of(const Contrast& contrast, const CellTable& table) {
  const auto compared = contrast.compared_keys();
  const auto group_of = [&](const CellRecords& cell) {
    return contrast.of_strategies() ? cell.group : group_apart_from(compared, *cell.runs[0], table.axes);
  };
  std::vector<Rivals> all;
  for (const CellRecords& a : table.cells) {
    if (!is_side(a, contrast, false)) continue;
    const std::string group = group_of(a);
    for (const CellRecords& b : table.cells) {
      if (is_side(b, contrast, true) && group_of(b) == group) all.push_back({&a, &b, group});
    }
  }
  return all;
}

struct Pairs {
  std::string placement;
  SeedValues differences;    // a - b for the seeds that both have
  std::set<uint64_t> stale;  // those of them where one of the two runs is stale
};

// The records of two cells on one placement, or on two that may be compared, paired by seed, where their runs
// match the sides.
Pairs pairs_of(const Rivals& rivals, const std::vector<const Record*>& of_a,
               const std::vector<const Record*>& of_b, const Contrast& contrast) {
  const auto a = rivals.a->records_at(contrast.rule(false), of_a);
  const auto b = rivals.b->records_at(contrast.rule(true), of_b);
  Pairs pairs;
  pairs.differences = paired_differences(values_by_seed(a, contrast.metric, contrast.population),
                                         values_by_seed(b, contrast.metric, contrast.population_above()));
  std::set<uint64_t> stale = stale_seeds(a);
  stale.merge(stale_seeds(b));
  for (const auto& [seed, difference] : pairs.differences) {
    if (stale.contains(seed)) pairs.stale.insert(seed);
  }
  return pairs;
}

// Whether runs on two placements may be compared: on one and the same; or, where that is what the contrast
// compares, on other devices and through other exchanges, and with other numbers of ranks or towers by the
// same way ("-cpu-sockets").
bool may_be_compared(const std::string& a, const std::string& b, const std::vector<std::string>& compared) {
  const auto any_of = [&](std::initializer_list<const char*> keys) {
    return std::ranges::any_of(keys, [&](const char* key) { return std::ranges::count(compared, key) > 0; });
  };
  const auto way = [](const std::string& placement) { return placement.substr(placement.find('-')); };
  return a == b || any_of({"placement.device", "placement.exchange"}) ||
         (any_of({"placement.ranks", "towers"}) && way(a) == way(b));
}

// One entry per placement that both have.
std::vector<Pairs> paired(const Rivals& rivals, const Contrast& contrast) {
  const auto compared = contrast.compared_keys();
  std::vector<Pairs> all;
  for (const auto& [placement, records] : rivals.a->placements) {
    for (const auto& [other, records_there] : rivals.b->placements) {
      if (!may_be_compared(placement, other, compared)) continue;
      Pairs pairs = pairs_of(rivals, records, records_there, contrast);
      pairs.placement = placement == other ? placement : placement + " - " + other;
      if (!pairs.differences.empty()) all.push_back(std::move(pairs));
    }
  }
  return all;
}

// The placement never changes an accuracy: the one with the most pairs stands for all.
Pairs most_of(const std::vector<Pairs>& all) {
  const auto most =
      std::ranges::max_element(all, {}, [](const Pairs& pairs) { return pairs.differences.size(); });
  return most == all.end() ? Pairs{} : *most;
}

ContrastResult evaluate(const Contrast& contrast, const std::string& group,
                        const std::array<std::string, 2>& strategies, const Pairs& pairs) {
  ContrastResult result;
  result.contrast = contrast;
  result.strategies = strategies;
  result.group = group;
  result.differences = pairs.differences;
  result.stale = pairs.stale;
  const std::vector<double> plain = without_seeds(pairs.differences);
  result.interval = t_interval(plain);
  result.p = t_test_p(plain);
  result.sign_flip_p = sign_flip_p(plain);
  if (plain.empty()) {
    result.warning = "no pair of finished runs";
  } else if (plain.size() < kFewestSeeds) {
    result.warning = "only " + std::to_string(plain.size()) + " paired seed" +
                     (plain.size() == 1 ? "" : "s") +
                     ", so a direction at most: the sign-flip test cannot go below p = " +
                     significant(std::pow(2.0, 1.0 - static_cast<double>(plain.size())), 3) + " (5 % needs " +
                     std::to_string(kFewestSeeds) + ")";
  }
  return result;
}

std::string rule_text(const Json& rule) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : rule.items()) parts.push_back(key + "=" + text_at(key, value));
  return joined(parts);
}

}  // namespace

std::array<std::string, 2> side_names(const Contrast& contrast) {
  if (contrast.of_strategies()) return {contrast.strategy, contrast.above};
  const std::string& key = contrast.runs.items().begin().key();
  if (contrast.runs.size() == 1 && contrast.above_runs.size() == 1 && contrast.above_runs.contains(key)) {
    return {key + ": " + text_at(key, contrast.runs[key]), text_at(key, contrast.above_runs[key])};
  }
  return {rule_text(contrast.runs), rule_text(contrast.above_runs)};
}

std::string pair_name(const Contrast& contrast) {
  const auto [side, above] = side_names(contrast);
  return side + " - " + above;
}

std::vector<ContrastResult> evaluate_contrasts(const std::vector<Contrast>& contrasts,
                                               const CellTable& table) {
  std::vector<ContrastResult> results;
  for (const Contrast& contrast : contrasts) {
    const size_t before = results.size();
    for (const Rivals& rivals : rivals_of(contrast, table)) {
      const std::array strategies = {rivals.a->strategy, rivals.b->strategy};
      const std::vector<Pairs> all = paired(rivals, contrast);
      if (!is_cost(contrast.metric) || all.size() < 2) {
        results.push_back(evaluate(contrast, rivals.group, strategies, most_of(all)));
        continue;
      }
      for (const Pairs& pairs : all) {
        const std::string group = (rivals.group == "all" ? "" : rivals.group + ", ") + pairs.placement;
        results.push_back(evaluate(contrast, group, strategies, pairs));
      }
    }
    if (results.size() == before) {
      results.push_back(evaluate(contrast, contrast.at.dump(), {contrast.strategy, contrast.above}, {}));
      results.back().warning = "no cell of the matrix matches";
    }
  }
  const std::vector<double> adjusted = holm(mapped(results, &ContrastResult::p));
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].holm_p = adjusted[i];
    results[i].verdict =
        verdict(without_seeds(results[i].differences), adjusted[i], results[i].contrast.equivalence_margin);
  }
  return results;
}

std::string verdicts_text(const std::vector<ContrastResult>& results) {
  std::map<Verdict, int> counts;
  for (const ContrastResult& result : results) ++counts[result.verdict];
  std::vector<std::string> parts;
  for (const auto& [verdict, count] : counts) parts.push_back(std::to_string(count) + " " + name(verdict));
  return joined(parts);
}

}  // namespace bnlab
