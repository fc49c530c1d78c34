#include "harness/launch/books.hpp"

#include <algorithm>
#include <filesystem>

#include "harness/error.hpp"
#include "harness/launch/survey.hpp"
#include "harness/printable.hpp"
#include "harness/records/attempts.hpp"
#include "harness/records/environment.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

double total_work(const std::vector<PlacedRun>& runs) {
  double work = 0;
  for (const PlacedRun& run : runs) {
    work += work_of(run.spec);
  }
  return work;
}

constexpr const char* kTakenOver = "they took it over, because it was not heard of for long";
const std::string kAttemptsWord = "all " + std::to_string(kMostAttempts) + " attempts";

// Where there are checkpoints, they and the log of the steps before them stay, so that the run goes on from there. The
// log becomes a copy, because a rank of the attempt before, whose launcher was stopped, may still write into the old one.
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
  if (const auto log = folder / kMetricsFile; std::filesystem::exists(log)) {
    write_atomically(log, read_text(log));
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
    company_.emplace(options.results_dir);
    environment_ = environment_record(library_versions());
  }
}

Books::~Books() {
  for (auto& [folder, held] : claims_) {
    try {
      if (std::filesystem::exists(std::filesystem::path(folder) /
                                  kRecordFile)) {  // only the last step is missing
        held.claim.publish(/*keep_counting=*/false);
      } else {
        held.claim.withdraw();
      }
    } catch (const std::exception&) {  // it stays, and its process is seen to be dead
    }
  }
}

Books::Turn Books::claim(PlacedRun& run, LaunchSummary& summary, bool last_look) {
  std::string holder;
  const auto finished = [&](const std::filesystem::path& folder) { return finished_since(run, folder); };
  auto claim = Claim::take(run.folder, *company_, options_.steal_after, finished, holder);
  if (!claim && !holder.empty()) {
    if (last_look) {
      left_to_others(run, holder + " has it", summary);
    }
    return Turn::held;
  }
  if (!claim) {
    count_skipped(survey({run}, {}).front(), summary);
    progress_.dropped(run.spec, "somebody else has finished it meanwhile");
    return Turn::settled;
  }
  run.folder = claim->folder().string();
  const bool given_up = claim->attempts() > kMostAttempts;
  claims_.insert({run.folder, {std::move(*claim), jobs_here()}});
  if (given_up) {
    started(run);
    RunEnd end;
    end.started_at = now_utc();
    end.outcome = {Status::crashed, kAttemptsWord + " left no record", std::nullopt, "", {}};
    ended(run, end, summary);
  }
  return given_up ? Turn::settled : Turn::ours;
}

void Books::started(const PlacedRun& run) {
  const std::filesystem::path folder = run.folder;
  std::filesystem::remove(folder / kRecordFile);  // first, so that a folder half emptied never looks finished
  empty(folder, run.afresh);
  std::filesystem::create_directories(folder);
  progress_.started(run.spec, folder / kMetricsFile);
}

void Books::not_started(const PlacedRun& run) {
  if (!std::filesystem::exists(std::filesystem::path(run.folder) / kRecordFile)) {  // it was begun
    empty(run.folder, /*afresh=*/false);
  }
  claims_.at(run.folder).claim.withdraw();
  claims_.erase(run.folder);
}

void Books::left_to_others(const PlacedRun& run, const std::string& why, LaunchSummary& summary) {
  ++summary.held;
  progress_.dropped(run.spec, "left to others: " + why);
}

bool Books::taken_over(const PlacedRun& run, LaunchSummary& summary) {
  const auto held = claims_.find(run.folder);
  if (held == claims_.end() || held->second.claim.owns()) {
    return false;
  }
  held->second.claim.withdraw();
  claims_.erase(held);
  left_to_others(run, kTakenOver, summary);
  return true;
}

void Books::ended(const PlacedRun& run, RunEnd end, LaunchSummary& summary, bool contact_lost) {
  const auto held = claims_.find(run.folder);
  auto& [claim, jobs] = held->second;
  end.outcome.message = printable(end.outcome.message);
  const int attempts = claim.attempts();
  if (contact_lost && attempts >= kMostAttempts) {
    end.outcome.message = kAttemptsWord + " lost contact; in the last one " + end.outcome.message;
  } else if (contact_lost) {
    end.outcome.status = Status::interrupted;
    end.outcome.message = "attempt " + std::to_string(attempts) + " of " + std::to_string(kMostAttempts) +
                          " lost contact: " + end.outcome.message;
  }
  try {
    if (claim.owns()) {
      write_json(std::filesystem::path(run.folder) / kRecordFile,
                 record_of(run, end, std::max(jobs, jobs_here())));
      if (end.outcome.status == Status::ok || end.outcome.status == Status::diverged) {
        std::filesystem::remove_all(std::filesystem::path(run.folder) / kCheckpointsFolder);
      }
    }
  } catch (const std::exception&) {  // the folder may be gone
    if (claim.owns()) {
      throw;
    }
  }
  const bool published = claim.publish(contact_lost && end.outcome.status == Status::interrupted);
  claims_.erase(held);
  if (!published) {
    left_to_others(run, kTakenOver, summary);
    return;
  }
  summary.count(end.outcome.status);
  progress_.finished(run.spec, end.outcome, end.wall_time_s, end.result);
}

Json Books::record_of(const PlacedRun& run, const RunEnd& end, int jobs) const {
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
  account.jobs = jobs;
  account.launcher = launcher_;
  account.environment = environment_;
  account.inputs = run.inputs;
  account.notes = run.notes;
  account.notes.insert(account.notes.end(), end.notes.begin(), end.notes.end());
  return compose_record(account);
}

}  // namespace bnlab
