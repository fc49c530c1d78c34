// Which run a weights file is of.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "harness/inference/evaluate.hpp"

namespace bnlab {

// Fills in what follows from job.weights, a weights.safetensors or the folder of the run that left it: the
// run's spec (of `spec`, a spec of one run, where that is not ""), its threads, its shadow pairs, and where
// none are named its populations. Throws Error (usage) where that does not say which run it is, or it has no
// such population.
EvaluateJob job_of_weights(EvaluateJob job, const std::string& spec);

// The option --spec, which says the run where no record does.
void add_spec_of_weights(CLI::App& command, std::string& spec);

}  // namespace bnlab
