// The books of a matrix while it runs: what the user sees, a record of every run that has ended, and how many runs
// ended how. Both ways to run a matrix keep them: own_ranks.cpp, and joined_world.cpp on rank 0.
#pragma once

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

class Books {
 public:
  // `runs` are about to be run; the user reads `remarks` first. `launcher` is what the records call it.
  Books(const Experiment& experiment, const LaunchOptions& options, std::string launcher,
        const std::vector<PlacedRun>& runs, const std::vector<std::string>& remarks);
  // Gives back the runs that have not ended. They are under way only where the disk or the machine failed this process, which
  // tells nothing about them.
  ~Books();
  Books(const Books&) = delete;
  Books& operator=(const Books&) = delete;

  enum class Turn { ours, held, settled };
  // Claims the run and makes run.folder the one in which this attempt works, where it is ours. Settled is a run that
  // somebody has finished meanwhile, or whose attempts are used up, which its record then says. One that another process
  // holds is counted and told with `last_look` only.
  Turn claim(PlacedRun& run, LaunchSummary& summary, bool last_look = true);
  void started(const PlacedRun& run);  // empties the attempt's folder but for checkpoints
  // To be called often: false once another process has taken the run over. It will have no record from here.
  bool keeps(const PlacedRun& run) { return claims_.at(run.folder).claim.beat(); }
  // Whether that has happened; if so, the run is left to them. Its files may be gone then, which others notice first.
  bool taken_over(const PlacedRun& run, LaunchSummary& summary);
  // The record is written last, then the attempt's folder becomes the run's. Where the end says nothing about the run
  // itself (`contact_lost`), its attempts stay counted, and the last one of kMostAttempts is taken for a crash.
  void ended(const PlacedRun& run, RunEnd end, LaunchSummary& summary, bool contact_lost = false);
  void not_started(const PlacedRun& run);  // the ranks never came together: no record, and no attempt
  void update() { progress_.update(); }    // cheap, to be called often

 private:
  struct Held {
    Claim claim;
    int jobs;  // on this machine when the run began
  };

  void left_to_others(const PlacedRun& run, const std::string& why, LaunchSummary& summary);
  Json record_of(const PlacedRun& run, const RunEnd& end, int jobs) const;
  int jobs_here() const { return options_.jobs + company_->others(); }

  const Experiment& experiment_;
  const LaunchOptions& options_;
  const std::string launcher_;
  Progress progress_;
  Json environment_;
  std::optional<ActiveProcesses> company_;  // where there are runs
  std::map<std::string, Held> claims_;      // of the runs under way, by their folder
};

}  // namespace bnlab
