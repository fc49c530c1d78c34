#include "harness/records/contrast_results.hpp"

#include <algorithm>
#include <cmath>

#include "harness/mapped.hpp"
#include "harness/records/text_table.hpp"

namespace bnlab {
namespace {

struct Pairs {
  std::string placement;
  SeedValues differences;    // a - b for the seeds that both have
  std::set<uint64_t> stale;  // those of them where one of the two runs is stale
};

// The records of two cells on one placement, paired by seed, where their runs match the contrast's `at`.
Pairs pairs_of(const CellRecords& a, const std::vector<const Record*>& of_a, const CellRecords& b,
               const std::vector<const Record*>& of_b, const Contrast& contrast) {
  const auto there = a.records_at(contrast.at, of_a), rivals = b.records_at(contrast.at, of_b);
  Pairs pairs;
  pairs.differences =
      paired_differences(values_by_seed(there, contrast.metric, contrast.population),
                         values_by_seed(rivals, contrast.metric, contrast.population_above()));
  std::set<uint64_t> stale = stale_seeds(there);
  stale.merge(stale_seeds(rivals));
  for (const auto& [seed, difference] : pairs.differences) {
    if (stale.contains(seed)) pairs.stale.insert(seed);
  }
  return pairs;
}

// One entry per placement that both have.
std::vector<Pairs> paired(const CellRecords& a, const CellRecords& b, const Contrast& contrast) {
  std::vector<Pairs> all;
  for (const auto& [placement, records] : a.placements) {
    const auto rivals = b.placements.find(placement);
    if (rivals == b.placements.end()) continue;
    Pairs pairs = pairs_of(a, records, b, rivals->second, contrast);
    pairs.placement = placement;
    if (!pairs.differences.empty()) all.push_back(std::move(pairs));
  }
  return all;
}

// The placement never changes an accuracy: the one with the most pairs stands for all.
Pairs most_of(const std::vector<Pairs>& all) {
  const auto most =
      std::ranges::max_element(all, {}, [](const Pairs& pairs) { return pairs.differences.size(); });
  return most == all.end() ? Pairs{} : *most;
}

ContrastResult evaluate(const Contrast& contrast, const std::string& group, const Pairs& pairs) {
  ContrastResult result;
  result.contrast = contrast;
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

}  // namespace

std::vector<ContrastResult> evaluate_contrasts(const std::vector<Contrast>& contrasts,
                                               const std::vector<CellRecords>& cells) {
  std::vector<ContrastResult> results;
  for (const Contrast& contrast : contrasts) {
    const size_t before = results.size();
    for (const CellRecords& a : cells) {
      if (a.strategy != contrast.strategy || !a.lies_at(contrast.at)) continue;
      for (const CellRecords& b : cells) {
        if (b.strategy != contrast.above || b.group != a.group || !b.lies_at(contrast.at)) continue;
        const std::vector<Pairs> all = paired(a, b, contrast);
        if (!is_cost(contrast.metric) || all.size() < 2) {
          results.push_back(evaluate(contrast, a.group, most_of(all)));
          continue;
        }
        for (const Pairs& pairs : all) {
          results.push_back(
              evaluate(contrast, (a.group == "all" ? "" : a.group + ", ") + pairs.placement, pairs));
        }
      }
    }
    if (results.size() == before) {
      results.push_back(evaluate(contrast, contrast.at.dump(), {}));
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

}  // namespace bnlab
