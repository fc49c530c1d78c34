#include "harness/cli/asked_weights.hpp"

#include <filesystem>
#include <vector>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/experiment/run.hpp"
#include "harness/experiment/weights_file.hpp"
#include "harness/launch/placing.hpp"
#include "harness/population.hpp"
#include "harness/store/ledger.hpp"
#include "harness/store/record.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"

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

bool of_averaged_weights(const std::string& population) {
  return population == kAveragedWeights || population == "ema_precise" || population == "ema_live";
}

// Where weights were selected those after which they were best in validation, else all.
std::optional<int64_t> steps_of_weights(const Record& record) {
  const auto selected = record.number("result.selected.step"), trained = record.number("result.steps");
  const auto steps = selected ? selected : trained;
  return steps ? std::optional(static_cast<int64_t>(*steps)) : std::nullopt;
}

// The folder of a run's only placement, where `folder` is that of the run; else `folder`.
fs::path one_placement(const fs::path& folder) {
  if (fs::exists(folder / kWeightsFile) || find_record(folder)) return folder;
  std::vector<fs::path> placements = known_folders(folder);
  std::erase_if(placements, [](const fs::path& each) { return !find_record(each); });
  return placements.size() == 1 ? placements.front() : folder;
}

// What to do about it that `folder`, which may have a run's record, has no weights.
std::string cure_for_missing_weights(const std::optional<Record>& record, const fs::path& folder) {
  if (!record) {
    return "a run leaves its " + std::string(kWeightsFile) +
           " in RESULTS/EXPERIMENT/RUN/PLACEMENT, such as results/quickstart/RUN/1x8-cpu";
  }
  const bool is_tuned = fs::exists(folder.parent_path().parent_path() / "tuning.json");
  return "the record of the run is here and its weights are not (committed results have none); make the run "
         "again: " +
         record->at("command").get<std::string>() + " --only run=" + record->run_id() + " --redo " +
         record->run_id() + (is_tuned ? ", with a copy of the experiment's tuning.json there" : "") +
         ", and name its folder there";
}

}  // namespace

void AskedWeights::describe(Arguments& option) {
  describe_run_spec(option, spec);
  describe_device(option, job.device);
  describe_data(option, job.data_dir);
}

EvaluateJob job_of_weights(EvaluateJob job, const std::string& spec) {
  if (!fs::is_regular_file(job.weights))
    if (const fs::path folder = one_placement(job.weights); fs::is_directory(folder) || find_record(folder))
      job.weights = (folder / kWeightsFile).string();
  if (const std::string cure = pytorch_cure(job.weights); !cure.empty())
    throw Error(Error::Kind::usage, "expected a safetensors file, got " + job.weights + cure);
  const fs::path folder = fs::path(job.weights).parent_path();
  const auto record = find_record(folder);
  if (!fs::is_regular_file(job.weights) && record && record->failed()) {
    const Json& why = record->at("outcome.message");
    throw Error(Error::Kind::usage, folder.string() +
                                        ": this run failed, and left no weights: " + name(record->status()) +
                                        (why.is_string() ? ": " + why.get<std::string>() : ""));
  }
  if (!fs::is_regular_file(job.weights)) {
    throw Error(Error::Kind::usage,
                job.weights + ": no such file; " + cure_for_missing_weights(record, folder));
  }
  if (!record && spec.empty()) {
    throw Error(Error::Kind::usage,
                job.weights + ": no " + kRecordFile + " beside it says which run it is of; use --spec SPEC");
  }
  job.spec = spec.empty() ? read_resolved(record->at("spec")) : only_run(spec);
  if (spec.empty()) job.steps = steps_of_weights(*record);
  // With the threads of the run, sums come out in the same order.
  job.threads = record ? record->at("placement.threads_per_rank").get<int>() : usable_cores();
  const fs::path pairs = folder / kPopulationsFile;
  job.pairs = fs::is_regular_file(pairs) ? pairs.string() : "";
  if (job.populations.empty()) {
    job.populations = job.spec.populations;
    std::erase_if(job.populations, of_averaged_weights);  // which the file does not hold
    if (job.populations.empty()) job.populations = {"saved"};
  }
  for (const std::string& population : job.populations) {
    const std::string problem = population_problem(population, job.spec.towers());
    if (!problem.empty() && population != kAveragedWeights)
      throw Error(Error::Kind::usage, "--population: " + problem);
    if (of_averaged_weights(population)) {
      throw Error(Error::Kind::usage, "--population: " + population +
                                          ": the file holds the weights of the last step, not their average; "
                                          "what the run found under it is in its record");
    }
  }
  return job;
}

}  // namespace bnlab
