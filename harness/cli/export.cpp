// bnlab export: the curves of runs for other programs, and weights without norms.
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/asked_weights.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/inference/folding.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"
#include "harness/support/text_table.hpp"
#include "harness/transfer/event_file.hpp"

namespace bnlab {
namespace {

struct ExportRequest {
  std::string folder;
  std::string out;
  bool folded = false;
  std::string spec;
  EvaluateJob job;  // but for what follows from the weights

  void describe(Arguments& option) {
    option("FOLDER", folder,
           "Folder RESULTS/EXPERIMENT; with --folded of one run, or its weights.safetensors");
    option("--out,--tensorboard PATH", out,
           "Folder for the event files, one below it per run; those of an earlier call are replaced. With "
           "--folded a safetensors file")
        .needed();
    option("--folded", folded,
           "Put each norm of a trained network into the convolution before it: the same outputs by strategy "
           "none");
    describe_run_spec(option, spec).only_with("--folded");
    describe_data(option, job.data_dir).only_with("--folded");
  }
};

int export_folded(const ExportRequest& request) {
  EvaluateJob job = request.job;
  job.weights = request.folder;
  job = job_of_weights(job, request.spec);
  const Folded folded = as_usage([&] { return write_folded(job, request.out); });
  std::cerr << "folded " << folded.norms << " norms; outputs differ by " << significant(folded.difference, 2)
            << " of the largest. Ask it with: "
            << shell_command("bnlab forward", {request.out, "--model", job.spec.model.dump(), "--strategy",
                                               "none", "--classes", std::to_string(folded.classes)})
            << " --images FILE --out FILE\n";
  return exit_code::kOk;
}

int export_curves(const ExportRequest& request) {
  if (request.folded) return export_folded(request);
  const ExperimentPath experiment = experiment_path(request.folder);
  std::vector<std::string> problems;
  const int count = export_event_files(experiment.results, experiment.name, request.out, problems);
  for (const std::string& problem : problems) std::cerr << "left out: " << problem << "\n";
  if (count == 0 && problems.empty())
    throw Error(Error::Kind::usage, request.folder + ": no run there has a metrics.jsonl");
  std::cerr << "wrote the event files of " << count << " runs; see them with: tensorboard --logdir "
            << request.out << "\n";
  return problems.empty() ? exit_code::kOk : exit_code::kFailed;
}

const Command export_command("export", {Heading::results, 1},
                             "Write the curves of runs for TensorBoard, or weights without norms",
                             "  bnlab export results/quickstart --out /tmp/curves\n"
                             "  bnlab export results/mine/RUN/1x8-cpu --folded --out folded.safetensors",
                             export_curves);

}  // namespace
}  // namespace bnlab
