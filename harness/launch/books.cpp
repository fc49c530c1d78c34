#include "harness/launch/books.hpp"

#include <filesystem>

#include "harness/error.hpp"
#include "harness/printable.hpp"
#include "harness/records/attempts.hpp"
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

const std::string kAttemptsWord = "all " + std::to_string(kMostAttempts) + " attempts";

// What is deleted and written in a run's folder must lie there, and not where a link leads.
void refuse_links(const std::filesystem::path& folder) {
  for (const std::filesystem::path& part : {folder.parent_path(), folder}) {
    if (std::filesystem::is_symlink(part)) {
      throw Error(Error::Kind::environment, part.string() +
                                                " is a symbolic link, through which a run deletes "
                                                "and writes nothing; remove it");
    }
  }
}

// Where there are checkpoints, they and the log of the steps before them stay, so that the run goes on from there.
void empty(const std::filesystem::path& folder, bool afresh) {
  if (afresh || !std::filesystem::exists(folder / kCheckpointsFolder)) {
    std::filesystem::remove_all(folder);
    return;
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name != kCheckpointsFolder && name != kMetricsFile) {
      std::filesystem::remove_all(entry.path());
    }
  }
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
  refuse_links(folder);
  std::filesystem::remove(folder / kRecordFile);  // first, so that a folder half emptied never looks finished
  empty(folder, run.afresh);
  std::filesystem::create_directories(folder);
  set_attempts(folder, attempts_without_end(folder) + 1);
  progress_.started(run.spec, folder / kMetricsFile);
}

void Books::not_started(const PlacedRun& run) {
  set_attempts(run.folder, attempts_without_end(run.folder) - 1);
  empty(run.folder, /*afresh=*/false);
}

bool Books::given_up(const PlacedRun& run, LaunchSummary& summary) {
  if (attempts_without_end(run.folder) < kMostAttempts) {
    return false;
  }
  started(run);
  RunEnd end;
  end.started_at = now_utc();
  end.outcome = {Status::crashed, kAttemptsWord + " left no record", std::nullopt, "", {}};
  ended(run, end, summary);
  return true;
}

void Books::ended(const PlacedRun& run, RunEnd end, LaunchSummary& summary, bool contact_lost) {
  const int attempts = attempts_without_end(run.folder);
  end.outcome.message = printable(end.outcome.message);
  if (contact_lost && attempts >= kMostAttempts) {
    end.outcome.message = kAttemptsWord + " lost contact; in the last one " + end.outcome.message;
  } else if (contact_lost) {
    end.outcome.status = Status::interrupted;
    end.outcome.message = "attempt " + std::to_string(attempts) + " of " + std::to_string(kMostAttempts) +
                          " lost contact: " + end.outcome.message;
  }
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
  if (end.outcome.status != Status::interrupted || !contact_lost) {
    set_attempts(run.folder, 0);
  }
  if (end.outcome.status == Status::ok || end.outcome.status == Status::diverged) {
    std::filesystem::remove_all(std::filesystem::path(run.folder) / kCheckpointsFolder);
  }
  summary.count(end.outcome.status);
  progress_.finished(run.spec, end.outcome, end.wall_time_s, end.result);
}

}  // namespace bnlab
