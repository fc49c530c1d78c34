// Which runs of an experiment `--only` asks for.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// The runs that fit every filter, in order. A filter is KEY=VALUE[,VALUE...]: KEY is a dotted key of the run
// spec ("seed", "strategy", "optimizer.lr", "placement.ranks"), and a run fits if `matches` finds one of the
// values there; so a component is named by its name or its label, "sync(gradient=stopped)". Commas within
// brackets do not separate. Throws Error (usage) for a key or value that no run has, with the ones there are.
std::vector<RunSpec> select_runs(const Experiment& experiment, const std::vector<std::string>& filters);

}  // namespace bnlab
