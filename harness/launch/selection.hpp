// Which runs of an experiment `--only` and `--slice` ask for.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// The runs of an experiment that fit every filter, in order. A filter is KEY=VALUE[,VALUE...]: KEY is a
// dotted key of the run spec ("seed", "strategy", "optimizer.lr", "placement.ranks"), and a run fits if
// `matches` finds one of the values there; so a component is named by its name or its label,
// "sync(gradient=stopped)". Commas within brackets do not separate. The key "run" stands for the run's id.
// "seed=any" leaves of each cell (runs that differ in their seed alone) the run of one seed, drawn at random:
// by the build's fingerprint, so that this build draws the same one again and nobody has chosen it.
// Throws Error (usage) for a key or value that no run has, with the ones there are, and for filters that no
// run fits together.
// `slice` is "" or "I/N": every N-th run of the whole matrix from the I-th on (from 1), so that slices share
// no run.
std::vector<RunSpec> select_runs(std::vector<RunSpec> runs, const std::vector<std::string>& filters,
                                 const std::string& slice = "");

// The same errors where `tune` has not chosen yet, but for keys that it chooses, or a part of.
void check_before_tuning(const Experiment& experiment, const std::vector<std::string>& filters);

}  // namespace bnlab
