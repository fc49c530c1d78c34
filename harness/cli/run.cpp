// bnlab run: trains what is not done yet, then prints the table.
#include <filesystem>
#include <iostream>
#include <memory>

#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/launch/launch.hpp"
#include "harness/records/report.hpp"

namespace bnlab {
namespace {

void print_outcome(const Experiment& experiment, const LaunchOptions& options, const LaunchSummary& summary) {
  const std::string folder = experiment_folder(options.results_dir, experiment.name).string();
  std::cout << report_text(make_report(experiment, list_records(options.results_dir, experiment.name)));
  std::cout.flush();
  std::cerr << "\n"
            << summary.finished << " runs done, " << summary.skipped << " were done before, "
            << summary.failed << " failed\n"
            << "records: " << folder << "\n"
            << "figures: scripts/plot.sh " << folder << " --spec " << experiment.file << "\n";
  if (summary.failed > 0) {
    std::cerr << "failed runs start again with: " << options.command << (options.retry ? "" : " --retry")
              << "\n";
  }
}

int run(const std::string& spec, const LaunchOptions& options) {
  const Experiment experiment = load_experiment(find_spec(spec));
  const LaunchSummary summary = launch(experiment, options);
  if (summary.interrupted) {
    std::cerr << "interrupted; finished runs are kept, go on with: " << options.command << "\n";
    return exit_code::kInterrupted;
  }
  if (summary.leads) {
    print_outcome(experiment, options, summary);
  }
  return summary.failed > 0 ? exit_code::kFailed : exit_code::kOk;
}

}  // namespace

void add_run(Program& program) {
  CLI::App* command =
      add_command(program, "run", "Train every run of a spec that is not done yet",
                  "  bnlab run experiments/quickstart.json --ranks 2\n"
                  "  bnlab run experiments/tradeoff.json --only strategy=sync,per_tower --only seed=0\n"
                  "  bnlab run experiments/camvid_small_batch.json --data ~/data --jobs 2\n"
                  "  torchrun --nproc-per-node 4 --no-python bnlab run experiments/tradeoff.json");
  const auto spec = std::make_shared<std::string>();
  const auto options = std::make_shared<LaunchOptions>();
  command->add_option("SPEC", *spec, "Spec file, or the name of one in experiments/")->required();
  add_placement_options(*command, *options);
  add_data_option(*command, options->data_dir);
  command->callback([&program, spec, options] {
    options->command = program.typed;
    options->program = std::filesystem::read_symlink("/proc/self/exe").string();
    program.action = [spec, options] { return run(*spec, *options); };
  });
}

}  // namespace bnlab
