// bnlab evaluate: a weights file that a run left, under any population of running statistics.
#include <algorithm>
#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/launch/placing.hpp"
#include "harness/population.hpp"
#include "harness/records/record.hpp"
#include "harness/records/text_table.hpp"
#include "harness/training/evaluate.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

struct EvaluateRequest {
  EvaluateJob job;  // but for what follows from its weights
  std::string spec;
  bool json = false;
};

// The one run that a spec stands for.
RunSpec only_run(const std::string& spec) {
  const Experiment experiment = load_experiment(find_spec(spec));
  if (experiment.runs.size() != 1) {
    throw Error(Error::Kind::usage, "--spec " + spec + ": expected a spec of one run, got one of " +
                                        std::to_string(experiment.runs.size()));
  }
  return experiment.runs[0];
}

EvaluateJob job_of(const EvaluateRequest& request) {
  EvaluateJob job = request.job;
  const fs::path folder = fs::path(job.weights).parent_path();
  if (!fs::is_regular_file(job.weights)) {
    throw Error(Error::Kind::usage, job.weights + ": no such file; a run leaves its " +
                                        std::string(kWeightsFile) + " in its folder of results");
  }
  const auto record = find_record(folder);
  if (!record && request.spec.empty()) {
    throw Error(Error::Kind::usage,
                job.weights + ": no " + kRecordFile + " beside it says which run it is of; use --spec SPEC");
  }
  job.spec = request.spec.empty() ? read_resolved(record->at("spec")) : only_run(request.spec);
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

std::string table(const Json& metrics) {
  TextTable table{{{"population"}}, {}};
  for (const auto& [population, values] : metrics.items()) {
    std::vector<std::string> row{population};
    for (const auto& [metric, value] : values.items()) {
      if (value.is_array() || value.is_object()) {
        continue;  // of single classes or groups: --json shows them
      }
      if (table.rows.empty()) {
        table.columns.push_back({metric, true});
      }
      row.push_back(value.is_number() ? fixed(value.get<double>(), 4) : "-");
    }
    table.rows.push_back(row);
  }
  return table.text();
}

int evaluate(const EvaluateRequest& request) {
  const EvaluateJob job = job_of(request);
  const Json metrics = evaluate_weights(job);
  for (const std::string& population : job.populations) {
    if (!metrics.contains(population)) {
      std::cerr << "note: " << label(job.spec.strategy) << " has no running statistics: " << population
                << " is the same as saved\n";
    }
  }
  if (request.json) {
    std::cout << Json{{"weights", job.weights}, {"run_id", job.spec.id}, {"metrics", metrics}}.dump(2)
              << "\n";
  } else {
    std::cout << table(metrics);
  }
  return exit_code::kOk;
}

}  // namespace

void add_evaluate(Program& program) {
  auto [command, request] =
      add_command(program, "evaluate", "A run's weights under any population of running statistics",
                  "  bnlab evaluate results/quickstart/RUN/2x1-cpu/weights.safetensors\n"
                  "  bnlab evaluate WEIGHTS --population saved,batch,precise --json",
                  evaluate);
  command.add_option("WEIGHTS", request.job.weights, "weights.safetensors in a run's folder")->required();
  command
      .add_option("--population", request.job.populations,
                  "saved, batch, precise, or, where the run carried it, tower:K, mean or pooled; default: "
                  "those of the run")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--spec", request.spec, "Spec of one run, in place of the record beside the weights")
      ->type_name("SPEC");
  add_ranks_option(command, request.job.ranks, "Ranks, as threads; must divide the towers");
  add_device_option(command, request.job.device);
  add_data_option(command, request.job.data_dir);
  command.add_flag("--json", request.json, "As JSON, with the metrics of classes and groups");
}

}  // namespace bnlab
