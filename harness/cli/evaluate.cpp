// bnlab evaluate: a weights file that a run left, under any population of running statistics.
#include <iostream>

#include "harness/cli/asked_weights.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/inference/trained_run.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

struct EvaluateRequest {
  AskedWeights asked;
  bool json = false;

  void describe(Arguments& option) {
    option("WEIGHTS", asked.job.weights, "The weights.safetensors of a run");
    option("--population NAME,...", asked.job.populations,
           "Running statistics: saved, batch, precise, mix:A, or, where the run carried it, tower:K, mean, "
           "pooled or own_tower. Default: those of the run")
        .by_commas();
    asked.describe(option);
    option("--ranks N", asked.job.ranks, "Ranks, as threads, which must divide the towers")
        .from(1, kMostAtOnce);
    option("--json", json, "Print JSON, with the metrics of classes and groups");
  }
};

std::string table(const Json& metrics) {
  TextTable table{{{"population"}}, {}};
  for (const auto& [population, values] : metrics.items()) {
    std::vector<std::string> row{population};
    for (const auto& [metric, value] : values.items()) {
      if (value.is_array() || value.is_object()) continue;  // --json shows single classes and groups
      if (table.rows.empty()) table.columns.push_back({metric, true});
      row.push_back(value.is_number() ? fixed(value.get<double>(), 4) : "-");
    }
    table.rows.push_back(row);
  }
  return table.text();
}

int evaluate(const EvaluateRequest& request) {
  const EvaluateJob job = job_of_weights(request.asked.job, request.asked.spec);
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

const Command evaluate_command("evaluate", {Heading::trained_networks, 1},
                               "Evaluate a run's weights with any population of running statistics",
                               "  bnlab evaluate results/here/quickstart/RUN/1x8-cpu/weights.safetensors\n"
                               "  bnlab evaluate WEIGHTS --population saved,batch,precise --json",
                               evaluate);

}  // namespace
}  // namespace bnlab
