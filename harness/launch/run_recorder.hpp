// Records the runs of a matrix: claims each of them before it starts, tells the user how far they are, writes
// a record of every run that has ended, and counts how runs ended. Both ways to run a matrix use it:
// own_ranks.cpp, and on rank 0 joined_world.cpp.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/launch/launch.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/progress.hpp"
#include "harness/queue/active_processes.hpp"
#include "harness/queue/claims.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// An attempt at a run that this process has claimed. It works in a folder of its own, which becomes
// run.folder once its record is there.
struct Attempt {
  PlacedRun run;
  std::string folder;
};

struct ClaimResult {
  std::optional<Attempt> attempt;  // nothing where the run is not to be started by this process
  bool held = false;  // another process has the run; else, without an attempt, the run has come to an end
};

class RunRecorder {
 public:
  // `runs` are about to start. `launcher` is what the records call the launcher. Counting goes on from
  // `summary`. The user reads `remarks` first.
  RunRecorder(const Experiment& experiment, const LaunchRequest& request, std::string launcher,
              const std::vector<PlacedRun>& runs, LaunchSummary summary,
              const std::vector<std::string>& remarks);
  // Withdraws the claims of the runs that have not ended. Runs are under way here only where the disk or the
  // machine failed this process, which tells nothing about them.
  ~RunRecorder();
  RunRecorder(const RunRecorder&) = delete;
  RunRecorder& operator=(const RunRecorder&) = delete;

  // Claims the run. It has come to an end where another process has finished it meanwhile. A run that another
  // process has is counted and told with `last_look` only.
  ClaimResult claim(const PlacedRun& run, bool last_look = true);
  void started(const Attempt& attempt);  // empties the attempt's folder but for checkpoints
  // To be called often. False once another process has taken the run over; this attempt will then have no
  // record.
  bool renew_claim(const Attempt& attempt);
  // Whether another process has taken the run over; if so, the run is left to it. Files of the attempt may be
  // missing then, which other code notices first.
  bool taken_over(const Attempt& attempt);
  // Writes the record, then makes the attempt's folder the run's. Where the ranks lost contact, which says
  // nothing about the run itself, its attempts stay counted, and the last one of kMostAttempts is taken for a
  // crash.
  void ended(const Attempt& attempt, RunEnd end, bool contact_lost = false);
  void not_started(const Attempt& attempt);  // the ranks never came together: no record, and no attempt
  void update() { progress_.update(); }      // cheap, to be called often

  const LaunchSummary& summary() const { return summary_; }

 private:
  struct ClaimedAttempt {
    Claim claim;
    int jobs;  // the most on this machine since the run began, as far as was seen
    std::chrono::steady_clock::time_point looked = std::chrono::steady_clock::now();
  };

  void left_to_others(const PlacedRun& run, const std::string& why);
  Json record_of(const Attempt& attempt, const RunEnd& end, int jobs) const;
  int jobs_here() const { return request_.jobs + processes_->others(); }

  const Experiment& experiment_;
  const LaunchRequest& request_;
  const std::string launcher_;
  LaunchSummary summary_;
  Progress progress_;
  Json environment_;
  std::optional<ActiveProcesses> processes_;      // where there are runs
  std::map<std::string, ClaimedAttempt> claims_;  // by folder
};

}  // namespace bnlab
