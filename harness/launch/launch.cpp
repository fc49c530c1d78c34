#include "harness/launch/launch.hpp"

#include <filesystem>

#include "harness/error.hpp"
#include "harness/launch/launch_parts.hpp"

namespace bnlab {

LaunchSummary launch(const Experiment& experiment, const LaunchOptions& options) {
  if (options.jobs < 1) {
    throw Error(Error::Kind::usage, "--jobs: expected at least 1, got " + std::to_string(options.jobs));
  }
  if (options.ranks > 0) {  // the user's own word comes before the environment's
    return launch_own_ranks(experiment, options);
  }
  const auto world = environment_world(process_environment());
  return world ? launch_in_world(experiment, options, *world) : launch_own_ranks(experiment, options);
}

RunAccount begin_account(const Experiment& experiment, const LaunchOptions& options, const PlacedRun& run,
                         const std::string& launcher, const Json& environment) {
  RunAccount account;
  account.experiment = experiment.name;
  account.command = options.command;
  account.spec = run.spec;
  account.placement = run.placement;
  account.backend = run.placement.device == "cuda" ? "nccl" : "gloo";
  account.threads_per_rank = run.threads;
  account.jobs = options.jobs;
  account.launcher = launcher;
  account.environment = environment;
  account.started_at = now_utc();
  return account;
}

void write_record(const RunAccount& account, const std::string& folder) {
  write_json(std::filesystem::path(folder) / kRecordFile, compose_record(account));
}

void count(LaunchSummary& summary, Status status) {
  if (status == Status::ok) {
    ++summary.finished;
  } else if (status != Status::interrupted) {
    ++summary.failed;
  }
}

void empty_folder(const std::string& folder) {
  // The record goes first, so that a folder half emptied is never taken for a finished run.
  std::filesystem::remove(std::filesystem::path(folder) / kRecordFile);
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
}

double total_work(const std::vector<PlacedRun>& runs) {
  double work = 0;
  for (const PlacedRun& run : runs) {
    work += work_of(run.spec);
  }
  return work;
}

}  // namespace bnlab
