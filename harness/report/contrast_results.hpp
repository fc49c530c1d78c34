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
#include "harness/store/declarations.hpp"

namespace bnlab {

// When a comparison was declared first: before all runs, or after so many runs of its experiment had finished
// or of its own had begun.
struct DeclaredWhen {
  std::string at;  // UTC
  int64_t after_runs = 0;
};

// Two sides of a comparison, seed by seed.
struct PairedSeeds {
  std::array<SeedValues, 2> sides;  // what each of the two has
  SeedValues differences;           // the first side - the other, for the seeds that both have
  std::set<uint64_t> stale;         // those of them that rest on a stale run
  std::set<uint64_t> stopped;       // those that rest on a run that stop_early ended
  std::set<uint64_t> failed;        // seeds of no pair: one side ended well there, the other failed
};

struct ContrastResult : PairedSeeds {
  Contrast contrast;
  std::optional<DeclaredWhen> declared;  // nothing where that was not kept
  std::string group;                     // the cells compared, "8x2"
  std::array<std::string, 2> strategies;
  Interval interval;                  // over the differences
  double p = 1, holm_p = 1;           // from the paired t test, as it is and after Holm's adjustment
  std::optional<double> equal_p;      // for being within its margin, adjusted among those that have one
  std::optional<double> sign_flip_p;  // nothing beyond 20 seeds
  // not_claimed: a throughput of runs that may claim none, which is no comparison that Holm adjusts for.
  Verdict verdict = Verdict::undecided;
  std::string warning;  // too few seeds, or nothing to compare; empty if none
};

// What the sides are called: "sync" and "per_tower"; "average_weights_every: 4" and "none" of one key; of
// several "towers=8, batch_per_tower=2" and "towers=2, batch_per_tower=8".
std::array<std::string, 2> side_names(const Contrast& contrast);
std::string pair_name(const Contrast& contrast);      // "sync - per_tower"
std::string pair_name(const ContrastResult& result);  // "sync - per_tower at 16x1"
// How an answer names a comparison: "sync - per_tower at 16x1, mean_iou saved", the first columns of its row.
std::string comparison_name(const ContrastResult& result);
std::string with_statistics(const std::string& strategy,
                            const std::string& population);  // "sync, batch statistics"
// As rows of a table, with their statistics: "average_weights_every=8".
std::array<std::string, 2> side_titles(const Contrast& contrast);
// What is compared of them: "mean_iou saved", or "mean_iou mean - tower:0" of two populations.
std::string measured_name(const Contrast& contrast);

// One result per contrast and group of cells in which runs match its `at`; only those runs are compared. A
// contrast that matches none has one result with a warning. Costs are compared on every placement apart; for
// an accuracy, which does not depend on it, seeds are paired on the placement that has the most pairs, and of
// such the fewest stale ones. Equality is said of no comparison that has lost seeds because a run failed.
std::vector<ContrastResult> evaluate_contrasts(const std::vector<Contrast>& contrasts, const CellTable& table,
                                               const std::vector<Declaration>& declarations = {});

// "All 9 comparisons were declared before the first run, on 2026-11-23.", or which were declared
// after how many runs, and which have been dropped since; none where nothing is compared or has run.
std::vector<std::string> declaration_sentences(const std::vector<ContrastResult>& results,
                                               const std::vector<Declaration>& declarations);
// The same in a few words, "declared before the first run; matrix changed after 54 runs".
std::string declaration_in_short(const std::vector<ContrastResult>& results,
                                 const std::vector<Declaration>& declarations);

// What its verdict is called: "better", and of memory "more" or "less", where more is not better.
std::string verdict_name(const ContrastResult& result);
// How often each verdict came out: "4 better, 1 equal, 5 undecided".
std::string verdicts_text(const std::vector<ContrastResult>& results);

}  // namespace bnlab
