#include "harness/launch/run_recorder.hpp"

#include <algorithm>
#include <filesystem>

#include "harness/launch/notify.hpp"
#include "harness/launch/survey.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/environment.hpp"
#include "harness/support/error.hpp"
#include "harness/support/printable.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

namespace fs = std::filesystem;

double total_work(const std::vector<PlacedRun>& runs) {
  double work = 0;
  for (const PlacedRun& run : runs) work += work_of(run.spec);
  return work;
}

constexpr std::chrono::seconds kLookAround{2};  // for other processes' runs
constexpr const char* kTakenOver = "they took it over, because it was not heard of for long";
const std::string kAttemptsWord = "all " + std::to_string(kMostAttempts) + " attempts";

// Where there are checkpoints, they and the log of the steps before them stay, so that the run goes on from
// there. The log becomes a copy, because a rank of the attempt before, whose launcher was stopped, may still
// write into the old one.
void clear_for_attempt(const fs::path& folder, bool from_scratch) {
  if (from_scratch || !fs::exists(folder / kCheckpointsFolder)) {
    fs::remove_all(folder);
    return;
  }
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name != kCheckpointsFolder && name != kMetricsFile) fs::remove_all(entry.path());
  }
  if (const auto log = folder / kMetricsFile; fs::exists(log)) write_atomically(log, read_text(log));
}

}  // namespace

RunRecorder::RunRecorder(const Experiment& experiment, const LaunchRequest& request, std::string launcher,
                         const std::vector<PlacedRun>& runs, LaunchSummary summary,
                         const std::vector<std::string>& remarks)
    : experiment_(experiment),
      request_(request),
      launcher_(std::move(launcher)),
      summary_(std::move(summary)),
      progress_(static_cast<int>(runs.size()), total_work(runs), request.jobs) {
  for (const std::string& remark : remarks) progress_.say("note: " + remark);
  for (const PlacedRun& run : runs)
    if (run.from_scratch) summary_.to_remake.insert(run.spec.id);
  if (!runs.empty()) {
    processes_.emplace(request.results_dir, renewal(request.steal_after).count());
    environment_ = environment_record(library_versions());
  }
}

RunRecorder::~RunRecorder() {
  for (auto& [folder, entry] : claims_) {
    try {
      if (fs::exists(fs::path(folder) / kRecordFile))  // only the last step is missing
        entry.claim.publish(/*keep_counting=*/false);
      else
        entry.claim.withdraw();
    } catch (const std::exception&) {  // the claim stays, and its process is seen to be dead
    }
  }
}

ClaimResult RunRecorder::claim(const PlacedRun& run, bool last_look) {
  std::string holder;
  const auto finished = [&](const fs::path& folder) { return finished_since(run, folder); };
  auto claim = Claim::take(run.folder, *processes_, request_.steal_after, finished, holder);
  if (claim) {
    Attempt attempt{run, claim->folder().string()};
    if (!claim->damage().empty())
      progress_.say("note: " + claim->damage() + "; it is taken for nobody's claim");
    claims_.insert({attempt.folder, {std::move(*claim), jobs_here()}});
    return {std::move(attempt)};
  }
  if (holder.empty()) {
    std::vector<std::string> said_before;
    const RunState state = survey({run}, {}, said_before).front();
    count_skipped(state, summary_);
    summary_.meanwhile += state.outcome == Status::ok;
    progress_.dropped(run.spec, "it has been finished meanwhile");
  } else if (last_look) {
    left_to_others(run, holder + " has it");
  }
  return {std::nullopt, /*held=*/!holder.empty()};
}

void RunRecorder::started(const Attempt& attempt) {
  const fs::path folder = attempt.folder;
  fs::remove(folder / kRecordFile);  // first, so that a folder half emptied never looks finished
  clear_for_attempt(folder, attempt.run.from_scratch);
  fs::create_directories(folder);
  progress_.started(attempt.run.spec, folder / kMetricsFile);
}

void RunRecorder::not_started(const Attempt& attempt) {
  if (!fs::exists(fs::path(attempt.folder) / kRecordFile))  // it was begun
    clear_for_attempt(attempt.folder, /*from_scratch=*/false);
  claims_.at(attempt.folder).claim.withdraw();
  claims_.erase(attempt.folder);
}

void RunRecorder::left_to_others(const PlacedRun& run, const std::string& why) {
  ++summary_.held;
  progress_.dropped(run.spec, "left to others: " + why);
}

bool RunRecorder::renew_claim(const Attempt& attempt) {
  ClaimedAttempt& entry = claims_.at(attempt.folder);
  const auto now = std::chrono::steady_clock::now();
  if (now - entry.looked >= kLookAround) {
    entry.looked = now;
    try {
      entry.jobs = std::max(entry.jobs, jobs_here());
    } catch (const fs::filesystem_error&) {  // the disk does not answer, which says nothing
    }
  }
  return entry.claim.beat();
}

bool RunRecorder::taken_over(const Attempt& attempt) {
  const auto entry = claims_.find(attempt.folder);
  if (entry == claims_.end() || entry->second.claim.owns()) return false;
  entry->second.claim.withdraw();
  claims_.erase(entry);
  left_to_others(attempt.run, kTakenOver);
  return true;
}

void RunRecorder::ended(const Attempt& attempt, RunEnd end, bool contact_lost) {
  const auto entry = claims_.find(attempt.folder);
  Claim& claim = entry->second.claim;
  end.outcome.message = printable(end.outcome.message);
  const int attempts = claim.attempts();
  if (contact_lost && attempts >= kMostAttempts) {
    end.outcome.message = kAttemptsWord + " lost contact; in the last one " + end.outcome.message;
  } else if (contact_lost) {
    end.outcome.status = Status::interrupted;
    end.outcome.message = "attempt " + std::to_string(attempts) + " of " + std::to_string(kMostAttempts) +
                          " lost contact: " + end.outcome.message;
  }
  // A result that was there before is replaced by another one alone.
  const bool earlier_stays = claim.made_again() && !has_result(end.outcome.status);
  try {
    if (claim.owns() && !earlier_stays) {
      write_json(fs::path(attempt.folder) / kRecordFile,
                 record_of(attempt, end, std::max(entry->second.jobs, jobs_here())));
      if (has_result(end.outcome.status)) fs::remove_all(fs::path(attempt.folder) / kCheckpointsFolder);
    }
  } catch (const std::exception&) {  // the folder may be gone
    if (claim.owns()) throw;
  }
  const bool interrupted = end.outcome.status == Status::interrupted;
  bool is_ours = claim.owns();
  if (!earlier_stays)
    is_ours = claim.publish(contact_lost && interrupted);
  else if (interrupted && !attempt.run.from_scratch)
    claim.withdraw();  // an interrupted run can go on from its checkpoints
  else
    claim.drop();
  claims_.erase(entry);
  if (!is_ours) {
    left_to_others(attempt.run, kTakenOver);
    return;
  }
  summary_.count(end.outcome.status);
  summary_.killed += interrupted && !end.outcome.signal.empty();
  if (!interrupted) summary_.to_remake.erase(attempt.run.spec.id);
  summary_.disturbed += value_at(end.result, "timing.disturbed") == true;
  progress_.finished(attempt.run.spec, end.outcome, end.wall_time_s, end.result);
  for (const std::string& note : end.lost_work) progress_.say("note: " + attempt.run.spec.id + ": " + note);
  if (earlier_stays) progress_.say("note: " + attempt.run.spec.id + " keeps the result that it had");
  const Status status = end.outcome.status;
  if (!request_.notify.empty() && status != Status::ok && status != Status::interrupted) {
    notify(request_.notify, failed_notice(experiment_.name, attempt.run.spec.id, attempt.run.folder, status,
                                          end.outcome.message));
  }
}

Json RunRecorder::record_of(const Attempt& attempt, const RunEnd& end, int jobs) const {
  const PlacedRun& run = attempt.run;
  RunAccount account;
  static_cast<RunEnd&>(account) = end;
  account.experiment = experiment_.name;
  account.command = request_.command;
  account.spec = run.spec;
  account.placement = run.placement;
  const std::optional<Exchange> exchange = run.placement.exchange;
  account.backend = exchange && exchange != Exchange::sockets ? name_of(*exchange)
                    : run.on_gpus()                           ? "nccl"
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
