// bnlab run: trains what is not done yet, then prints the table. bnlab rank: one rank of a run, for the
// launcher and not for people, so it is not listed.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "harness/cli/asked_spec.hpp"
#include "harness/cli/options.hpp"
#include "harness/cli/program.hpp"
#include "harness/experiment/tuning.hpp"
#include "harness/launch/launch.hpp"
#include "harness/launch/notify.hpp"
#include "harness/launch/rank_job.hpp"
#include "harness/report/report.hpp"
#include "harness/report/status.hpp"
#include "harness/store/records.hpp"
#include "harness/support/error.hpp"
#include "harness/support/shell.hpp"

namespace bnlab {
namespace {

struct RunRequest {
  AskedSpec spec;
  AskedLaunch launch;

  void describe(Arguments& option) {
    spec.describe(option);
    launch.describe(option);
    describe_notify(option, launch.notify);
  }
};

struct RankRequest {
  std::string job;

  void describe(Arguments& option) { option("--job FILE", job, "job.json of the run").needed(); }
};

// The command that was typed, with the cure.
std::string with_redo(const LaunchRequest& asked, const std::string& which) {
  const bool there = std::ranges::find(asked.redo, which) != asked.redo.end();
  return asked.command + (there ? "" : " --redo " + which);
}

void print_outcome(const Experiment& experiment, const LaunchRequest& asked, const LaunchSummary& summary) {
  const std::string folder = experiment_folder(asked.results_dir, experiment.name).string();
  const ExperimentReport report = make_report(experiment, list_records(asked.results_dir, experiment.name),
                                              kept_declarations(asked.results_dir, experiment.name));
  std::cout << report_text(report) << std::flush;
  for (const std::string& problem : report.problems) std::cerr << "left out: " << problem << "\n";
  std::cerr << "\n"
            << summary.finished << " runs done, "
            << summary.skipped - summary.failed_before - summary.meanwhile << " were done before"
            << (summary.meanwhile > 0 ? " and " + std::to_string(summary.meanwhile) + " meanwhile by others"
                                      : "")
            << (summary.done_on.empty() ? "" : " on " + placements_text(summary.done_on)) << ", "
            << summary.failed << " failed";
  if (summary.failed_before > 0) std::cerr << ", " << summary.failed_before << " had failed before";
  std::cerr << "\n"
            << "records: " << folder << "\n"
            << "figures: " << shell_command("scripts/plot.sh", {folder}) << "\n";
  for (const auto& [reason, runs] : summary.failures)
    std::cerr << "failed before: " << runs << " with " << reason << "\n";
  if (summary.held > 0) std::cerr << summary.held << " runs are left to other processes, which have them\n";
  if (summary.killed > 0) {
    std::cerr << summary.killed << (summary.killed == 1 ? " run was" : " runs were")
              << " interrupted, since a rank was killed; go on with: " << asked.command << "\n";
  }
  if (summary.failed + summary.failed_before > 0)
    std::cerr << "failed runs start again with: " << with_redo(asked, "failed") << "\n";
  for (const auto& [reason, runs] : summary.stale)
    std::cerr << "stale: " << runs << " finished runs of this table: " << reason << "\n";
  if (!summary.stale.empty())
    std::cerr << "stale runs start again with: " << with_redo(asked, "stale") << "\n";
  if (summary.disturbed > 0) {
    std::cerr << "disturbed: others used the machine while " << summary.disturbed
              << (summary.disturbed == 1 ? " run" : " runs")
              << " of this table took turns; timed again with: " << with_redo(asked, "disturbed") << "\n";
  }
}

int interrupted(const LaunchRequest& asked) {
  std::cerr << "interrupted; finished runs are kept, go on with: " << asked.command << "\n";
  return exit_code::kInterrupted;
}

// `--redo all` would make those again that have just been made again.
void tell_remade(const LaunchRequest& asked, const LaunchSummary& summary) {
  const bool names_finished = std::ranges::any_of(asked.redo, [](const std::string& which) {
    return which != "stale" && which != "disturbed" && which != "failed";
  });
  if (!names_finished) return;
  const std::vector<std::string> left(summary.to_remake.begin(), summary.to_remake.end());
  std::cerr << (left.empty() ? "what --redo names has been made again: go on without it\n"
                             : "of what --redo names these are left, to name in its place: --redo " +
                                   joined(left, " ") + "\n");
}

// The matrix cannot start, because runs that choose its settings have no result.
int not_settled(const Experiment& experiment, const LaunchRequest& asked, const LaunchSummary& tuning) {
  if (tuning.leads) {
    std::cerr << "the matrix has not started: " << tuning.failed + tuning.failed_before
              << " of the runs that tune it have failed: "
              << shell_command("bnlab status",
                               {experiment_folder(asked.results_dir, experiment.tuning->runs.name).string()})
              << "\nthey start again with: " << with_redo(asked, "failed") << "\n";
  }
  return exit_code::kFailed;
}

int run_matrix(Experiment& experiment, const LaunchRequest& asked) {
  const LaunchSummary tuning = tune(experiment, asked);
  if (tuning.interrupted) return interrupted(asked);
  if (experiment.tuning && !experiment.tuning->is_settled()) return not_settled(experiment, asked, tuning);
  const LaunchSummary summary = launch(experiment, asked);
  if (summary.interrupted) {
    if (summary.leads) tell_remade(asked, summary);
    return interrupted(asked);
  }
  if (summary.leads) {
    print_outcome(experiment, asked, summary);
    if (!asked.notify.empty() && summary.held == 0) {
      notify(asked.notify,
             ended_notice(experiment.name, summary.finished + summary.skipped - summary.failed_before,
                          summary.failed + summary.failed_before));
    }
  }
  const bool any_failed = summary.failed + summary.failed_before + summary.killed > 0;
  return any_failed ? exit_code::kFailed : summary.held > 0 ? exit_code::kOthers : exit_code::kOk;
}

// Why nothing can be written into a folder, which need not be there yet; "" where something can.
std::string why_not_writable(const std::filesystem::path& folder) {
  std::error_code none;
  std::filesystem::path there = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(there, none) && there.has_relative_path()) there = there.parent_path();
  if (!std::filesystem::is_directory(there, none)) return there.string() + " is no folder";
  return ::access(there.c_str(), W_OK | X_OK) == 0
             ? ""
             : "nothing can be written into " + there.string() + " (" + std::strerror(errno) + ")";
}

bool is_of_environment(const std::exception& error) {
  const auto* told = dynamic_cast<const Error*>(&error);
  return told == nullptr || told->kind() == Error::Kind::environment;
}

int run(const RunRequest& request) {
  LaunchRequest asked = request.launch;
  Experiment experiment = request.spec.load(asked.results_dir);
  try {
    return run_matrix(experiment, asked);
  } catch (const std::exception& error) {
    const std::string problem = why_not_writable(experiment_folder(asked.results_dir, experiment.name));
    if (problem.empty() || !is_of_environment(error)) throw;
    throw Error(Error::Kind::environment,
                "--results " + asked.results_dir + ": " + problem +
                    "; name a folder that you may write into; users who share one need a "
                    "group of their own for it, its right to write, and umask 002");
  }
}

int rank(const RankRequest& request) {
  return rank_main(request.job);
}

const Command run_command("run", {Heading::start_here, 1}, "Train every run of a spec that is not done yet",
                          "  bnlab run quickstart --ranks 2\n"
                          "  bnlab run tradeoff --only strategy=sync,per_tower --only seed=10\n"
                          "  bnlab run quickstart steps=10 task.crop=[32,32] --only seed=0\n"
                          "  bnlab run quickstart --redo stale\n"
                          "  bnlab run experiments/camvid_small_batch.json --data ~/data --jobs 2\n"
                          "  bnlab run tradeoff --notify 'mail -s \"$BNLAB_MESSAGE\" me </dev/null'\n"
                          "  torchrun --nproc-per-node 4 --no-python bnlab run tradeoff",
                          run);
const Command rank_command("rank", {Heading::none, 1}, "One rank of a run",
                           "  bnlab rank --job results/quickstart/RUN/2x1-cpu/job.json", rank);

}  // namespace
}  // namespace bnlab
