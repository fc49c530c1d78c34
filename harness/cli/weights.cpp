#include "harness/cli/weights.hpp"

#include <filesystem>

#include "harness/cli/options.hpp"
#include "harness/error.hpp"
#include "harness/launch/placing.hpp"
#include "harness/population.hpp"
#include "harness/store/record.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

// The one run that a spec stands for.
RunSpec only_run(const std::string& spec) {
  std::string results = "results";
  const Experiment experiment = load_asked(spec, results);
  if (experiment.runs.size() != 1) {
    throw Error(Error::Kind::usage, "--spec " + spec + ": expected a spec of one run, got one of " +
                                        std::to_string(experiment.runs.size()));
  }
  return experiment.runs[0];
}

}  // namespace

EvaluateJob job_of_weights(EvaluateJob job, const std::string& spec) {
  if (fs::is_directory(job.weights)) {
    job.weights = (fs::path(job.weights) / kWeightsFile).string();
  }
  const fs::path folder = fs::path(job.weights).parent_path();
  if (!fs::is_regular_file(job.weights)) {
    throw Error(Error::Kind::usage, job.weights + ": no such file; a run leaves its " +
                                        std::string(kWeightsFile) + " in its folder of results");
  }
  const auto record = find_record(folder);
  if (!record && spec.empty()) {
    throw Error(Error::Kind::usage,
                job.weights + ": no " + kRecordFile + " beside it says which run it is of; use --spec SPEC");
  }
  job.spec = spec.empty() ? read_resolved(record->at("spec")) : only_run(spec);
  // With the threads of the run, sums come out in the same order.
  job.threads = record ? record->at("placement.threads_per_rank").get<int>() : usable_cores();
  const fs::path pairs = folder / kPopulationsFile;
  job.pairs = fs::is_regular_file(pairs) ? pairs.string() : "";
  if (job.populations.empty()) {
    job.populations = job.spec.populations;
  }
  for (const std::string& population : job.populations) {
    const std::string problem = population_problem(population, job.spec.towers());
    if (!problem.empty()) {
      throw Error(Error::Kind::usage, "--population: " + problem);
    }
  }
  return job;
}

void add_spec_of_weights(CLI::App& command, std::string& spec) {
  command.add_option("--spec", spec, "Spec of one run, in place of the record beside the weights")
      ->type_name("SPEC");
}

}  // namespace bnlab
