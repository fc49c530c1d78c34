// What the results folder holds of the runs that are asked for, whether it still answers what is asked, and
// which of the runs start.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/launch/placing.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// What the results folder holds of one run. A run which ended ok on any placement is done, unless spec,
// command line or launcher name another (NamedParts). Of several up-to-date ones, or several stale ones, that
// of the placement which the run would have today comes first, then the one that counts (counts_before).
struct RunState {
  std::optional<Status> outcome;  // of the run's record; nothing where there is none that can be used
  bool damaged = false;           // there is a record, but it is not whole or not of this run
  std::string failure;            // one line: why the run failed, or what is wrong with its record
  std::string stale;              // why the run would answer something else today; empty: it would not
  std::string stopped_early;      // why the spec's stop_early ended it; empty: it did not
  bool disturbed = false;  // others used the machine while it was timed, so that its times claim nothing
  std::string begun;       // when its finished record was begun
  bool afresh = false;     // the run starts from the beginning, not from a checkpoint
  bool starts = true;      // because nothing finished is there, or `redo` names it
  std::string placement;   // of the record, else where the run would be computed: "2x4-cpu"
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

// Looks at the data and weights that the runs read, and fills in PlacedRun::inputs. Returns what is missing
// of them, each message once: such runs cannot start.
std::vector<std::string> look_at_inputs(std::vector<PlacedRun>& runs, const LaunchRequest& request);

// Bytes that are left where the results go, whether the folder is there yet or not; nothing where the disk
// does not tell.
std::optional<double> free_disk(const std::string& results);
// Whether so few bytes are left that runs cannot start: fewer than they need, or than 64 MiB where that is
// more or not known. What else they need is a guess, and no reason to refuse.
bool is_disk_full(double left, std::optional<double> need);
std::string mib_needed(double bytes);  // "12 MiB", rounded up
std::string mib_left(double bytes);    // the same, rounded down

// Why runs that are to start cannot where they are placed, with the cure; each sentence once.
std::vector<std::string> misplaced(const std::vector<PlacedRun>& runs, const std::vector<RunState>& states);

// Looks at inputs and records of the runs and returns the runs that start. The others are counted in
// `summary`, and what a killed process has left beside their folders is removed; damaged records are remarked
// upon. The spec and what the runs read are kept in the experiment's folder. Throws Error (usage) if files
// are missing that a run needs which is to start, if anything is wrong with their contents, or if a run
// cannot be where it is placed.
std::vector<PlacedRun> runs_to_start(const Experiment& experiment, std::vector<PlacedRun>& runs,
                                     const LaunchRequest& request, LaunchSummary& summary,
                                     std::vector<std::string>& remarks);

// The bytes of the folders that these runs leave, judged by finished runs of their experiment. Each is taken
// to be as large as the mean of the folders with the same model that ended ok, or of all of them where there
// is none with this model. Runs that make checkpoints hold two and write a third while they are under way,
// `side_by_side` of them at once; a checkpoint has the weights and at most two moments of each. Returns
// nothing where no run has ended ok.
std::optional<double> disk_need(const std::vector<const RunSpec*>& runs, const std::vector<Record>& records,
                                int side_by_side);

}  // namespace bnlab
