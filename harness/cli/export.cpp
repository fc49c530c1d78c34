// bnlab export: the curves of runs for other programs.
#include <filesystem>
#include <iostream>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/error.hpp"
#include "harness/transfer/event_file.hpp"

namespace bnlab {
namespace {

struct ExportRequest {
  std::string folder;
  std::string tensorboard;
};

int export_curves(const ExportRequest& request) {
  const ExperimentPath experiment = experiment_path(request.folder);
  std::vector<std::string> problems;
  const int count = export_event_files(experiment.results, experiment.name, request.tensorboard, problems);
  for (const std::string& problem : problems) std::cerr << "left out: " << problem << "\n";
  if (count == 0 && problems.empty())
    throw Error(Error::Kind::usage, request.folder + ": no run there has a metrics.jsonl");
  std::cerr << "wrote the event files of " << count << " runs; see them with: tensorboard --logdir "
            << request.tensorboard << "\n";
  return problems.empty() ? exit_code::kOk : exit_code::kFailed;
}

}  // namespace

void add_export(Program& program) {
  auto [command, request] =
      add_command(program, "export", "Write the curves of runs as event files for TensorBoard",
                  "  bnlab export results/quickstart --out /tmp/curves", export_curves);
  command.add_option("FOLDER", request.folder, "Folder RESULTS/EXPERIMENT")->required();
  command
      .add_option("--out,--tensorboard", request.tensorboard,
                  "Folder for the event files, one below it per run; those of an earlier call are replaced")
      ->type_name("DIR")
      ->required();
}

}  // namespace bnlab
