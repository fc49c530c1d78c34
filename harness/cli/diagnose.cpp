// bnlab diagnose: why a network evaluates worse than it trains, in one sentence with the numbers.
#include <iostream>

#include "harness/cli/asked_weights.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/inference/diagnosis.hpp"
#include "harness/store/record.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

struct DiagnoseRequest {
  AskedWeights asked;
  double margin = 0.02;
  bool json = false;

  void describe(Arguments& option) {
    option("WEIGHTS", asked.job.weights,
           "The folder of a run, its weights.safetensors, or with --spec a checkpoint of PyTorch, converted "
           "to safetensors");
    asked.describe(option);
    option("--margin NUMBER", margin, "Differences of the metric up to this count as none").from(0);
    option("--json", json, "Print the causes, the sentence and the numbers as JSON");
  }
};

// What was measured, in words and in the order of the table.
std::vector<std::pair<std::string, std::optional<double>>> diagnosis_rows(const DiagnosisNumbers& n) {
  const std::string shard = n.nearest_tower ? "shard of tower " + std::to_string(*n.nearest_tower) : "";
  return {{"training images, their batch's own", n.training},
          {"test images, saved", n.saved},
          {"test images, recomputed", n.precise},
          {"test images, recomputed over the " + shard, n.nearest_shard},
          {"test images, the batch's own", n.batch},
          {"test images, averaged weights (record)", n.ema},
          {"test images, averaged weights, recomputed (record)", n.ema_precise}};
}

Json diagnosis_json(const DiagnosisNumbers& n, const Diagnosis& diagnosis) {
  const auto held = [](const auto& value) { return value ? Json(*value) : Json(); };
  Json causes = Json::array();
  for (const Cause cause : diagnosis.causes) causes.push_back(name_of(cause));
  return {{"causes", causes},
          {"sentence", diagnosis.sentence},
          {"metric", n.metric},
          {"training", n.training},
          {"saved", n.saved},
          {"precise", held(n.precise)},
          {"batch", held(n.batch)},
          {"nearest_tower", held(n.nearest_tower)},
          {"nearest_shard", held(n.nearest_shard)},
          {"ema", held(n.ema)},
          {"ema_precise", held(n.ema_precise)}};
}

int diagnose(const DiagnoseRequest& request) {
  EvaluateJob job = request.asked.job;
  job.populations = {"saved"};
  job = job_of_weights(job, request.asked.spec);
  DiagnosisNumbers numbers = as_usage([&] { return diagnosis_numbers(job); });
  if (const auto record = find_record(std::filesystem::path(job.weights).parent_path())) {
    numbers.ema = record->number("result.final.ema." + numbers.metric);
    numbers.ema_precise = record->number("result.final.ema_precise." + numbers.metric);
  }
  const Diagnosis diagnosis = diagnosis_of(numbers, request.margin);
  if (request.json) {
    std::cout << diagnosis_json(numbers, diagnosis).dump(2) << "\n";
    return exit_code::kOk;
  }
  TextTable table{{{"images and statistics"}, {numbers.metric, true}}, {}};
  for (const auto& [what, value] : diagnosis_rows(numbers))
    if (value) table.rows.push_back({what, fixed(*value, 4)});
  std::cout << diagnosis.sentence << "\n\n" << table.text();
  return exit_code::kOk;
}

const Command diagnose_command("diagnose", {Heading::trained_networks, 2},
                               "Explain why a network evaluates worse than it trains, in one sentence",
                               "  bnlab diagnose results/here/quickstart/RUN/1x8-cpu\n"
                               "  bnlab diagnose resnet18.safetensors --spec trained_so.json --data ~/data",
                               diagnose);

}  // namespace
}  // namespace bnlab
