#include "harness/launch/books.hpp"

#include <filesystem>

#include "harness/records/environment.hpp"
#include "harness/training/rank.hpp"

namespace bnlab {
namespace {

double total_work(const std::vector<PlacedRun>& runs) {
  double work = 0;
  for (const PlacedRun& run : runs) {
    work += work_of(run.spec);
  }
  return work;
}

}  // namespace

Books::Books(const Experiment& experiment, const LaunchOptions& options, std::string launcher,
             const std::vector<PlacedRun>& runs, const std::vector<std::string>& remarks)
    : experiment_(experiment),
      options_(options),
      launcher_(std::move(launcher)),
      progress_(static_cast<int>(runs.size()), total_work(runs), options.jobs) {
  for (const std::string& remark : remarks) {
    progress_.say("note: " + remark);
  }
  if (!runs.empty()) {
    environment_ = environment_record(library_versions());
  }
}

void Books::started(const PlacedRun& run) {
  const std::filesystem::path folder = run.folder;
  std::filesystem::remove(folder / kRecordFile);  // first, so that a folder half emptied never looks finished
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  progress_.started(run.spec, folder / kMetricsFile);
}

void Books::ended(const PlacedRun& run, const RunEnd& end, LaunchSummary& summary) {
  RunAccount account;
  static_cast<RunEnd&>(account) = end;
  account.experiment = experiment_.name;
  account.command = options_.command;
  account.spec = run.spec;
  account.placement = run.placement;
  account.backend = run.placement.device == "cuda"                      ? "nccl"
                    : run.placement.exchange == Exchange::shared_memory ? "shared_memory"
                                                                        : "gloo";
  account.threads_per_rank = run.threads;
  account.jobs = options_.jobs;
  account.launcher = launcher_;
  account.environment = environment_;
  account.inputs = run.inputs;
  account.notes = run.notes;
  account.notes.insert(account.notes.end(), end.notes.begin(), end.notes.end());
  write_json(std::filesystem::path(run.folder) / kRecordFile, compose_record(account));
  summary.count(end.outcome.status);
  progress_.finished(run.spec, end.outcome, end.wall_time_s, end.result);
}

}  // namespace bnlab
