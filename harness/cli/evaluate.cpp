// bnlab evaluate: a weights file that a run left, under any population of running statistics.
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/text_table.hpp"

namespace bnlab {
namespace {

struct EvaluateRequest {
  EvaluateJob job;  // but for what follows from its weights
  std::string spec;
  bool json = false;
};

std::string table(const Json& metrics) {
  TextTable table{{{"population"}}, {}};
  for (const auto& [population, values] : metrics.items()) {
    std::vector<std::string> row{population};
    for (const auto& [metric, value] : values.items()) {
      if (value.is_array() || value.is_object()) continue;  // of single classes or groups: --json shows them
      if (table.rows.empty()) table.columns.push_back({metric, true});
      row.push_back(value.is_number() ? fixed(value.get<double>(), 4) : "-");
    }
    table.rows.push_back(row);
  }
  return table.text();
}

int evaluate(const EvaluateRequest& request) {
  const EvaluateJob job = job_of_weights(request.job, request.spec);
  const Json metrics = as_usage([&] { return evaluate_weights(job); });
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
      add_command(program, "evaluate", "Evaluate a run's weights with any population of running statistics",
                  "  bnlab evaluate results/here/quickstart/RUN/1x8-cpu/weights.safetensors\n"
                  "  bnlab evaluate WEIGHTS --population saved,batch,precise --json",
                  evaluate);
  command.add_option("WEIGHTS", request.job.weights, "The weights.safetensors of a run")->required();
  command
      .add_option("--population", request.job.populations,
                  "Running statistics: saved, batch, precise, mix:A, or, where the run carried it, tower:K, "
                  "mean, pooled or own_tower. Default: those of the run")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_spec_of_weights(command, request.spec);
  add_ranks_option(command, request.job.ranks, "Ranks, as threads, which must divide the towers");
  add_device_option(command, request.job.device);
  add_data_option(command, request.job.data_dir);
  command.add_flag("--json", request.json, "Print JSON, with the metrics of classes and groups");
}

}  // namespace bnlab
