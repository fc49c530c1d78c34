// The books of a matrix while it runs: what the user sees, a record of every run that has ended, and how many runs
// ended how. Both ways to run a matrix keep them: own_ranks.cpp, and joined_world.cpp on rank 0.
#pragma once

#include <string>
#include <vector>

#include "harness/launch/launch.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/progress.hpp"
#include "harness/records/record.hpp"

namespace bnlab {

class Books {
 public:
  // `runs` are about to be run; the user reads `remarks` first. `launcher` is what the records call it.
  Books(const Experiment& experiment, const LaunchOptions& options, std::string launcher,
        const std::vector<PlacedRun>& runs, const std::vector<std::string>& remarks);

  // Makes the run's folder, or empties it but for checkpoints, and counts an attempt.
  void started(const PlacedRun& run);
  // The record is written last. Where the end says nothing about the run itself (`contact_lost`), its attempts stay
  // counted, and the last one of kMostAttempts is taken for a crash.
  void ended(const PlacedRun& run, RunEnd end, LaunchSummary& summary, bool contact_lost = false);
  // The ranks never came together: no record, and no attempt.
  void not_started(const PlacedRun& run);
  // Whether the attempts at this run are used up without a record. It has one then, and is not to be started.
  bool given_up(const PlacedRun& run, LaunchSummary& summary);
  void update() { progress_.update(); }  // cheap, to be called often

 private:
  const Experiment& experiment_;
  const LaunchOptions& options_;
  const std::string launcher_;
  Progress progress_;
  Json environment_;
};

}  // namespace bnlab
