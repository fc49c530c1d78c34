#include "harness/report/contrast_results.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <ranges>

#include "harness/support/mapped.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr const char* kNoThroughput =
    "no throughput is claimed of runs with several towers on a rank, beside others, or disturbed while they "
    "were timed; one tower per rank (--ranks), --jobs 1 and a machine with nothing else to do give one";

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
  std::map<std::string, std::vector<const CellRecords*>> above;  // by group
  for (const CellRecords& b : table.cells)
    if (is_side(b, contrast, true)) above[group_of(b)].push_back(&b);
  std::vector<Rivals> all;
  for (const CellRecords& a : table.cells) {
    if (!is_side(a, contrast, false)) continue;
    const std::string group = group_of(a);
    if (const auto found = above.find(group); found != above.end())
      for (const CellRecords* b : found->second) all.push_back({&a, b, group});
  }
  return all;
}

struct Pairs : PairedSeeds {
  std::string placement;
  std::vector<const Record*> records;
};

std::set<uint64_t> seeds_of(const SeedValues& values) {
  const auto seeds = std::views::keys(values);
  return {seeds.begin(), seeds.end()};
}

// The seeds at which one side has a value, and the other nothing but runs that failed.
std::set<uint64_t> lost_to_failures(const SeedValues& values, const std::vector<const Record*>& others,
                                    const SeedValues& values_of_others) {
  std::set<uint64_t> failed;
  for (const Record* record : others)
    if (record->status() != Status::ok) failed.insert(record->seed());
  const std::set<uint64_t> here = seeds_of(values), there = seeds_of(values_of_others);
  std::erase_if(failed, [&](uint64_t seed) { return there.contains(seed) || !here.contains(seed); });
  return failed;
}

// The records of two cells on one placement, or on two that may be compared, paired by seed, where their runs
// match the sides.
Pairs pairs_of(const Rivals& rivals, const std::vector<const Record*>& of_a,
               const std::vector<const Record*>& of_b, const Contrast& contrast) {
  const auto a = rivals.a->records_at(contrast.rule(false), of_a);
  const auto b = rivals.b->records_at(contrast.rule(true), of_b);
  Pairs pairs;
  pairs.sides = {values_by_seed(a, contrast.metric, contrast.population),
                 values_by_seed(b, contrast.metric, contrast.population_above())};
  const auto& [values_a, values_b] = pairs.sides;
  pairs.differences = pairwise(values_a, values_b);
  pairs.failed = lost_to_failures(values_a, b, values_b);
  pairs.failed.merge(lost_to_failures(values_b, a, values_a));
  const auto among_pairs = [&](std::set<uint64_t> of_a, std::set<uint64_t> of_b) {
    of_a.merge(of_b);
    std::erase_if(of_a, [&](uint64_t seed) {
      return std::ranges::count(pairs.differences, seed, &SeedValues::value_type::first) == 0;
    });
    return of_a;
  };
  pairs.stale = among_pairs(stale_seeds(a), stale_seeds(b));
  pairs.stopped = among_pairs(stopped_seeds(a), stopped_seeds(b));
  pairs.records = a;
  pairs.records.insert(pairs.records.end(), b.begin(), b.end());
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

// The placement never changes an accuracy: the one with the most pairs, and of such the fewest stale ones,
// stands for all. Where runs are spread over several, so that each leaves seeds out or has stale ones, every
// seed counts with one of its records.
Pairs most_of(const std::vector<Pairs>& all, const Rivals& rivals, const Contrast& contrast) {
  const auto worth = [](const Pairs& pairs) {
    return std::pair(pairs.differences.size(), -static_cast<std::ptrdiff_t>(pairs.stale.size()));
  };
  const auto most = std::ranges::max_element(all, {}, worth);
  Pairs best = most == all.end() ? Pairs{} : *most;
  if (is_cost(contrast.metric)) return best;
  const Pairs spread = pairs_of(rivals, rivals.a->one_per_seed(), rivals.b->one_per_seed(), contrast);
  if (most == all.end()) best.sides = spread.sides;  // one of the two has runs, maybe
  return worth(spread) > worth(best) ? spread : best;
}

std::optional<DeclaredWhen> declared_when(const Contrast& contrast,
                                          const std::vector<const Record*>& compared,
                                          const std::vector<Declaration>& declarations) {
  const auto first = std::ranges::find_if(
      declarations, [&](const Declaration& declaration) { return declaration.holds(contrast); });
  if (first == declarations.end()) return std::nullopt;
  const int64_t begun = std::ranges::count_if(compared, [&](const Record* record) {
    const Json& at = record->at("started_at");
    return at.is_string() && at.get<std::string>() < first->at;
  });
  return DeclaredWhen{first->at, std::max(first->finished_runs, begun)};
}

// Whether both sides have finished runs, and none of one of them may claim a throughput.
bool claims_none(const Rivals& rivals, const Contrast& contrast) {
  if (!is_throughput(contrast.metric)) return false;
  const auto finished = [&](const CellRecords& cell, bool is_above) {
    std::vector<const Record*> all;
    for (const auto& [placement, records] : cell.placements) {
      std::ranges::copy_if(cell.records_at(contrast.rule(is_above), records), std::back_inserter(all),
                           [](const Record* record) { return record->status() == Status::ok; });
    }
    return all;
  };
  const auto of_a = finished(*rivals.a, false), of_b = finished(*rivals.b, true);
  const auto none_counts = [](const std::vector<const Record*>& records) {
    return std::ranges::none_of(records, &Record::throughput_counts);
  };
  return !of_a.empty() && !of_b.empty() && (none_counts(of_a) || none_counts(of_b));
}

ContrastResult evaluate(const Contrast& contrast, const std::string& group,
                        const std::array<std::string, 2>& strategies, const Pairs& pairs,
                        const std::vector<Declaration>& declarations) {
  ContrastResult result;
  static_cast<PairedSeeds&>(result) = pairs;
  result.contrast = contrast;
  result.declared = declared_when(contrast, pairs.records, declarations);
  result.strategies = strategies;
  result.group = group;
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

// Verdicts, from p values that are adjusted after Holm: those of a difference among all comparisons, those of
// equality among the ones that have a margin.
void judge(std::vector<ContrastResult>& results) {
  std::vector<ContrastResult*> judged, with_margin;
  std::vector<double> p, equal_p;
  for (ContrastResult& result : results) {
    if (result.verdict == Verdict::not_claimed) continue;
    judged.push_back(&result);
    p.push_back(result.p);
    if (const auto& margin = result.contrast.equivalence_margin) {
      with_margin.push_back(&result);
      equal_p.push_back(equivalence_p(without_seeds(result.differences), *margin));
    }
  }
  const std::vector<double> adjusted = holm(p), adjusted_equal = holm(equal_p);
  for (size_t i = 0; i < with_margin.size(); ++i) with_margin[i]->equal_p = adjusted_equal[i];
  for (size_t i = 0; i < judged.size(); ++i) {
    ContrastResult& result = *judged[i];
    result.holm_p = adjusted[i];
    result.verdict = verdict(without_seeds(result.differences), result.holm_p,
                             result.failed.empty() ? result.equal_p : std::nullopt);
  }
}

// ", on 2026-11-23" of "2026-11-23T18:40:07Z".
std::string on_day(const std::string& at) {
  return ", on " + at.substr(0, at.find('T'));
}

std::string runs_text(int64_t runs) {
  return std::to_string(runs) + (runs == 1 ? " run" : " runs");
}

// "declared before the first run, on 2026-11-23".
std::string time_text(const std::optional<DeclaredWhen>& declared) {
  if (!declared) return "not declared when runs were started, but afterwards";
  const int64_t runs = declared->after_runs;
  return "declared " + (runs == 0 ? "before the first run" : "after " + runs_text(runs)) +
         on_day(declared->at);
}

// What was changed beside the comparisons when runs had finished: the keys, and the declaration that did it.
std::vector<std::pair<std::string, const Declaration*>> changed_after_runs(
    const std::vector<Declaration>& declarations) {
  std::vector<std::pair<std::string, const Declaration*>> changes;
  for (size_t i = 1; i < declarations.size(); ++i) {
    const auto keys = keys_that_differ(declarations[i - 1], declarations[i]);
    if (!keys.empty() && declarations[i].finished_runs > 0)
      changes.emplace_back(joined(keys), &declarations[i]);
  }
  return changes;
}

// What was declared at some time and is no comparison of the spec now.
std::vector<Json> dropped_since(const std::vector<ContrastResult>& results,
                                const std::vector<Declaration>& declarations) {
  std::vector<Json> dropped;
  for (const Declaration& declaration : declarations) {
    for (const Json& one : declaration.declared.at("contrasts")) {
      const bool there = std::ranges::any_of(results, [&](const ContrastResult& result) {
        return nlohmann::json(canonical(result.contrast)) == nlohmann::json(one);
      });
      if (!there && std::ranges::count(dropped, one) == 0) dropped.push_back(one);
    }
  }
  return dropped;
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
  if (contrast.runs.size() == 1 && contrast.above_runs.size() == 1 && contrast.above_runs.contains(key))
    return {key + ": " + text_at(key, contrast.runs[key]), text_at(key, contrast.above_runs[key])};
  return {rule_text(contrast.runs), rule_text(contrast.above_runs)};
}

std::string pair_name(const Contrast& contrast) {
  const auto [side, above] = side_names(contrast);
  return side + " - " + above;
}

std::string pair_name(const ContrastResult& result) {
  return pair_name(result.contrast) + (result.group == "all" ? "" : " at " + result.group);
}

std::string comparison_name(const ContrastResult& result) {
  return pair_name(result) + ", " + measured_name(result.contrast);
}

std::string with_statistics(const std::string& strategy, const std::string& population) {
  return population.empty() || population == "saved" ? strategy
                                                     : strategy + ", " + population + " statistics";
}

std::array<std::string, 2> side_titles(const Contrast& contrast) {
  const auto [side, above] = contrast.of_strategies()
                                 ? side_names(contrast)
                                 : std::array{rule_text(contrast.runs), rule_text(contrast.above_runs)};
  return {with_statistics(side, contrast.population), with_statistics(above, contrast.population_above())};
}

std::string measured_name(const Contrast& contrast) {
  const std::string title = measure_of(contrast.metric).title;
  if (is_cost(contrast.metric)) return title;
  return title + " " + contrast.population +
         (contrast.above_population ? " - " + *contrast.above_population : "");
}

std::vector<ContrastResult> evaluate_contrasts(const std::vector<Contrast>& contrasts, const CellTable& table,
                                               const std::vector<Declaration>& declarations) {
  std::vector<ContrastResult> results;
  for (const Contrast& contrast : contrasts) {
    const size_t before = results.size();
    for (const Rivals& rivals : rivals_of(contrast, table)) {
      const std::array strategies = {rivals.a->strategy, rivals.b->strategy};
      const std::vector<Pairs> all = paired(rivals, contrast);
      if (!is_cost(contrast.metric) || all.size() < 2) {
        results.push_back(
            evaluate(contrast, rivals.group, strategies, most_of(all, rivals, contrast), declarations));
        if (claims_none(rivals, contrast)) {
          results.back().verdict = Verdict::not_claimed;
          results.back().warning = kNoThroughput;
        }
        continue;
      }
      for (const Pairs& pairs : all) {
        const std::string group = (rivals.group == "all" ? "" : rivals.group + ", ") + pairs.placement;
        results.push_back(evaluate(contrast, group, strategies, pairs, declarations));
      }
    }
    if (results.size() == before) {
      results.push_back(
          evaluate(contrast, contrast.at.dump(), {contrast.strategy, contrast.above}, {}, declarations));
      results.back().warning = "no cell of the matrix matches";
    }
  }
  judge(results);
  return results;
}

std::vector<std::string> declaration_sentences(const std::vector<ContrastResult>& results,
                                               const std::vector<Declaration>& declarations) {
  if (std::ranges::all_of(results, [](const ContrastResult& result) { return result.differences.empty(); }))
    return {};
  if (declarations.empty()) {
    return {"When the comparisons were declared was not kept: there is no " + std::string(kDeclarationsFile) +
            "."};
  }
  std::map<std::string, std::vector<const ContrastResult*>> by_time;
  for (const ContrastResult& result : results) by_time[time_text(result.declared)].push_back(&result);
  std::vector<std::string> sentences;
  for (const auto& [time, of_time] : by_time) {
    const bool all = of_time.size() == results.size();
    std::set<std::string> names;
    for (const ContrastResult* result : of_time) names.insert(pair_name(*result));
    const std::string count = std::to_string(results.size());
    sentences.push_back((all && results.size() == 1 ? "The comparison was "
                         : all                      ? "All " + count + " comparisons were "
                               : joined(std::vector<std::string>(names.begin(), names.end()), "; ") + ": ") +
                        time + ".");
  }
  for (const auto& [keys, by] : changed_after_runs(declarations))
    sentences.push_back("Changed after " + runs_text(by->finished_runs) + on_day(by->at) + ": " + keys + ".");
  const std::vector<Json> dropped = dropped_since(results, declarations);
  if (!dropped.empty()) {
    sentences.push_back("Declared once and dropped since: " +
                        joined(mapped(dropped, [](const Json& one) { return one.dump(); }), "; ") + ".");
  }
  return sentences;
}

std::string declaration_in_short(const std::vector<ContrastResult>& results,
                                 const std::vector<Declaration>& declarations) {
  const auto late = std::ranges::count_if(results, [](const ContrastResult& result) {
    return result.declared && result.declared->after_runs > 0;
  });
  const auto unknown = std::ranges::count(
      results, false, [](const ContrastResult& result) { return result.declared.has_value(); });
  const auto all = static_cast<std::ptrdiff_t>(results.size());
  if (unknown == all) return "the time of declaration was not kept";
  if (unknown > 0) return std::to_string(unknown) + " of them not declared when runs were started";
  std::string text = late > 0 ? std::to_string(late) + " of them declared after runs had finished"
                              : "declared before the first run";
  for (const auto& [keys, by] : changed_after_runs(declarations))
    text += "; " + keys + " changed after " + runs_text(by->finished_runs);
  const size_t dropped = dropped_since(results, declarations).size();
  return text + (dropped > 0 ? "; " + std::to_string(dropped) + " dropped since" : "");
}

std::string verdict_name(const ContrastResult& result) {
  if (!measure_of(result.contrast.metric).more_is_better) {
    if (result.verdict == Verdict::better) return "more";
    if (result.verdict == Verdict::worse) return "less";
  }
  return name(result.verdict);
}

std::string verdicts_text(const std::vector<ContrastResult>& results) {
  std::map<std::pair<Verdict, std::string>, int> counts;
  for (const ContrastResult& result : results) ++counts[{result.verdict, verdict_name(result)}];
  std::vector<std::string> parts;
  for (const auto& [verdict, count] : counts) parts.push_back(std::to_string(count) + " " + verdict.second);
  return joined(parts);
}

}  // namespace bnlab
