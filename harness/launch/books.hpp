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

  void started(const PlacedRun& run);  // makes the run's folder, or empties it
  void ended(const PlacedRun& run, const RunEnd& end, LaunchSummary& summary);  // the record is written last
  void update() { progress_.update(); }                                         // cheap, to be called often

 private:
  const Experiment& experiment_;
  const LaunchOptions& options_;
  const std::string launcher_;
  Progress progress_;
  Json environment_;
};

}  // namespace bnlab
