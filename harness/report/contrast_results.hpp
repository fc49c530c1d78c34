// What became of the contrasts that a spec declared before anything ran: differences paired by seed, and
// verdicts.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/report/cells.hpp"
#include "harness/report/statistics.hpp"

namespace bnlab {

struct ContrastResult {
  Contrast contrast;
  std::string group;                      // the cells compared, "8x2"
  std::array<std::string, 2> strategies;  // of the two sides
  SeedValues differences;                 // of the side expected above - the other
  Interval interval;                      // of the differences
  double p = 1, holm_p = 1;               // of the paired t test, as it is and after Holm's adjustment
  std::optional<double> sign_flip_p;      // nothing beyond 20 seeds
  std::set<uint64_t> stale;               // the seeds of those that rest on a stale run
  Verdict verdict = Verdict::undecided;
  std::string warning;  // too few seeds, or nothing to compare; empty if none
};

// What the sides are called: "sync" and "per_tower"; "average_weights_every: 4" and "none" of one key; of
// several "towers=8, batch_per_tower=2" and "towers=2, batch_per_tower=8".
std::array<std::string, 2> side_names(const Contrast& contrast);
std::string pair_name(const Contrast& contrast);  // "sync - per_tower"

// One result per contrast and group of cells in which runs match its `at`; only those runs are compared. A
// contrast that matches none has one result with a warning. Costs are compared on every placement apart; for
// an accuracy, which does not depend on it, seeds are paired on the placement that has the most pairs.
std::vector<ContrastResult> evaluate_contrasts(const std::vector<Contrast>& contrasts,
                                               const CellTable& table);

// How often each verdict came out: "4 better, 1 equal, 5 undecided".
std::string verdicts_text(const std::vector<ContrastResult>& results);

}  // namespace bnlab
