// Settings that are chosen before a matrix is run, the `tune` of a spec: every strategy gets the same grid,
// on other seeds and other images than those of the matrix, and keeps what scored best there. With `lengths`
// the steps of training are chosen too, for all groups alike: the shortest of them from which doubling gains
// each group, at its best setting, less than `gain_below`. With `halvings` only the better half of a group's
// settings is trained twice as long (successive halving: Jamieson and Talwalkar 2016). Needs no LibTorch.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/mistakes.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// What runs that tune came to, by run id: the metric, or nothing where a run diverged, which counts as 0.
using TuningScores = std::map<std::string, std::optional<double>>;

// A point of the grid, as one group of runs tried it.
struct Candidate {
  Json setting;  // dotted keys -> values
  std::vector<std::optional<double>> scores;
  std::optional<int64_t> dropped_after = {};  // steps: halving left it out, and these are the scores there

  double mean() const;
  int diverged() const;
};

// Runs that choose together: those of one strategy, unless `per` says otherwise.
struct TunedGroup {
  std::string name;                        // "sync"; "sync, towers=8"
  std::vector<Candidate> candidates = {};  // at the chosen length, in the order of the grid
  size_t best = 0;                         // the first of the highest mean among those that were not dropped
  std::vector<std::string> at_edge = {};   // keys whose best value is the smallest or the largest of the grid
  std::vector<double> best_means = {};     // the highest mean at each length that was tried

  const Candidate& chosen() const { return candidates.at(best); }
};

struct Tuning {
  Tune asked;
  Experiment runs;                         // those that tune: an experiment of its own
  std::vector<int64_t> lengths;            // steps of these runs, ascending; empty: those of the matrix
  std::vector<TunedGroup> groups;          // empty before they have been run
  std::vector<int64_t> tried;              // the lengths that were, which may be fewer than asked
  std::optional<int64_t> steps;            // the one that was chosen, if any was to be
  std::vector<std::string> still_gaining;  // names of groups that the last doubling won `gain_below` or more

  bool is_settled() const { return !groups.empty(); }
  std::string measure() const;  // "mean_iou (saved statistics) ", with which the sentence begins
  // "mean_iou (saved statistics) chooses optimizer.lr for each strategy, on seeds 100, 101".
  std::string sentence() const;
  // "1200 steps: doubling them gains each strategy less than 0.01"; of settled lengths.
  std::string length_sentence() const;
  Json length_json() const;  // the same as an object; null where no length was chosen
};

// Beside `experiment`, which has a `tune`. Throws Error (spec) with `mistakes` and those that are found.
std::shared_ptr<const Tuning> make_tuning(const Experiment& experiment, Mistakes& mistakes);

// The group that a run belongs to: "sync, towers=8".
std::string tuned_group(const Tune& tune, const RunSpec& run);
// The point of the grid that a run stands for.
Json tuned_setting(const Tune& tune, const RunSpec& run);
// "0.1" of one key, "optimizer.lr=0.1, optimizer.weight_decay=0" of several.
std::string setting_text(const Json& setting);

// The resolved keys, with "placement", of a run that is given a point of the grid and a number of steps.
Json with_choice(const RunSpec& run, const Json& setting, std::optional<int64_t> steps);

// Those of the runs that tune that the choice needs next: all, or those of the two shortest lengths (of the
// shortest, where halving looks at it first) and of every further one that the scores ask for.
std::vector<RunSpec> needed_runs(const Tuning& tuning, const TuningScores& scores);
// How many runs the choice may come to need, if every doubling gains.
size_t most_needed_runs(const Tuning& tuning, TuningScores scores);

// Chooses, and gives every run of the matrix what its group chose, and with it another id, and every contrast
// that names its strategy the label that it then has. The choice follows from the scores alone. Where one is
// missing that it needs, nothing happens.
void settle(Experiment& experiment, const TuningScores& scores);

}  // namespace bnlab
