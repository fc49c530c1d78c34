// Which runs of an experiment `--only` asks for.
#pragma once

#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"

namespace bnlab {

// The runs that match every filter, in order. A filter is KEY=VALUE[,VALUE...]: KEY is a dotted key of the
// run spec ("seed", "strategy", "optimizer.lr") or "towers"; a component (strategy, model, task, optimizer)
// matches by its name or, for a strategy, by its label "sync(gradient=stopped)". Commas within brackets do
// not separate. Throws Error (usage) for a key or value that no run has, with the ones there are.
std::vector<RunSpec> select_runs(const Experiment& experiment, const std::vector<std::string>& filters);

}  // namespace bnlab
