// Which trained network a command line names.
#pragma once

#include <string>

#include "harness/cli/arguments.hpp"
#include "harness/inference/trained_run.hpp"

namespace bnlab {

// A trained network: its weights and, where no record says it, the spec of the run that left them.
struct AskedWeights {
  EvaluateJob job;  // but for what follows from the weights
  std::string spec;

  void describe(Arguments& option);  // but for the weights
};

// Which run a weights file is of. Fills in what follows from job.weights, a weights.safetensors or the
// folder of the run that left it: the run's spec (of `spec`, a spec of one run, where that is not ""), its
// threads, its shadow pairs, and where none are named its populations. Throws Error (usage) where that
// does not say which run it is, or it has no such population.
EvaluateJob job_of_weights(EvaluateJob job, const std::string& spec);

}  // namespace bnlab
