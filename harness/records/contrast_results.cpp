#include "harness/records/contrast_results.hpp"

#include <algorithm>
#include <cmath>

#include "harness/mapped.hpp"
#include "harness/records/text_table.hpp"

namespace bnlab {
namespace {

// The metric by seed, of the records whose runs match the contrast's `at`.
SeedValues values_at(const CellRecords& cell, const std::vector<const Record*>& records,
                     const Contrast& contrast, const std::string& population) {
  return values_by_seed(cell.records_at(contrast.at, records), contrast.metric, population);
}

struct Pairs {
  std::string placement;
  SeedValues differences;  // a - b for the seeds that both have
};

// One entry per placement that both have.
std::vector<Pairs> paired(const CellRecords& a, const CellRecords& b, const Contrast& contrast) {
  std::vector<Pairs> all;
  for (const auto& [placement, records] : a.placements) {
    const auto rivals = b.placements.find(placement);
    if (rivals == b.placements.end()) continue;
    Pairs pairs{placement,
                paired_differences(values_at(a, records, contrast, contrast.population),
                                   values_at(b, rivals->second, contrast, contrast.population_above()))};
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

ContrastResult evaluate(const Contrast& contrast, const std::string& group, const SeedValues& differences) {
  ContrastResult result;
  result.contrast = contrast;
  result.group = group;
  result.differences = differences;
  const std::vector<double> plain = without_seeds(differences);
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
          results.push_back(evaluate(contrast, a.group, most_of(all).differences));
          continue;
        }
        for (const Pairs& pairs : all) {
          results.push_back(evaluate(contrast, (a.group == "all" ? "" : a.group + ", ") + pairs.placement,
                                     pairs.differences));
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
