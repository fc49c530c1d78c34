// What the results folder holds of the runs that are asked for, and whether it still answers what is asked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/launch/placing.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// What the results folder holds of one run. A run which ended ok on any placement is done, unless spec,
// command line or launcher name another (NamedParts). Of several up-to-date ones, or several stale ones, that
// of the placement which the run would have today comes first, then the one that counts (counts_before).
struct RunState {
  std::optional<Status> outcome;  // nothing where no record can be used
  bool damaged = false;           // there is a record, but it is not whole or not of this run
  std::string failure;            // one line: why the run failed, or what is wrong with its record
  std::string stale;              // why the run would answer something else today; empty: it would not
  std::string stopped_early;      // why the spec's stop_early ended it; empty: it did not
  bool disturbed = false;  // others used the machine while it was timed, so that its times claim nothing
  std::string record_started_at;  // when its finished record was begun
  bool from_scratch = false;      // the run starts from the beginning, not from a checkpoint
  bool must_run = true;           // because nothing finished is there, or `redo` names it
  std::string placement;          // "2x4-cpu": where its record lies, else where the run would be computed
  std::vector<std::string> elsewhere;  // placements where it ended ok, which do not count: others are named

  std::string name() const;  // "missing", "damaged", or the name of the outcome
};

// The state of each run in turn. `redo` has the words of --redo: "stale", "disturbed", "failed" or "all", or
// ids of runs; another word throws Error (usage). Remarks tell of runs that start although they are done on
// placements that do not count, and of runs that will fail at their first step.
std::vector<RunState> survey(const std::vector<PlacedRun>& runs, const std::vector<std::string>& redo,
                             std::vector<std::string>& remarks);

// Counts a run that does not start, because it is finished.
void count_skipped(const RunState& state, LaunchSummary& summary);

// Whether this folder holds a finished record that was not there when the run was looked at.
bool finished_since(const PlacedRun& run, const std::string& folder);

}  // namespace bnlab
