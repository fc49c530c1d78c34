// How far an experiment is: counts of its runs by outcome, and why runs failed, grouped by what was said.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/queue/claims.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

inline constexpr const char* kConfirmed =
    " of older code that count, because today's has repeated runs of their cells to the last digit";

inline constexpr const char* kOfOtherSpecs =
    " that the spec does not ask for: of an earlier one, or of other keys on the command line";

// Runs that failed alike.
struct Failure {
  Status status = Status::error;
  std::string message;  // the first line of the outcome's message; its signal where there is none
  int runs = 0;
  std::string run_id;  // one of them
  std::string folder;  // with its logs
};

// "2x1-cpu", or "2x1-cpu 30, 1x2-cpu 6": how many of some runs are done on which placement.
std::string placements_text(const std::map<std::string, int>& done_on);

// Counts a failed run among those that failed alike.
void add_failure(const Record& record, std::vector<Failure>& failures);

// The commonest first, one line each: "3 error: no such file (such as sync-8x2-seed0-1f3a9c2b4d5e)".
std::vector<std::string> failure_lines(std::vector<Failure> failures);
Json failures_json(const std::vector<Failure>& failures);

struct RunCounts {
  int asked = 0;                        // runs that the spec asks for; without a spec, run folders that exist
  int finished = 0;                     // with a record, whatever the outcome but interrupted
  int failed = 0;                       // finished, and ok under no placement
  int disturbed = 0;                    // timed on some placement while others used the machine
  int stale = 0;                        // finished, but code, data or weights have changed since
  std::map<std::string, int> outcomes;  // status name -> runs, interrupted ones included
  std::map<std::string, int> done_on;   // placement -> runs that are ok there
  std::vector<Failure> failures;
  std::map<std::string, int> stale_reasons;  // why -> runs
  std::map<std::string, int> stopped_early;  // why -> runs that are ok but ended before their last step
  int others = 0;                            // finished runs in the folder that the spec does not ask for
  int confirmed = 0;      // by older code, but today's has repeated runs like them (records.hpp)
  int other_sources = 0;  // by sources that were written otherwise and compute the same (harness/numerics)

  int ok() const { return finished - failed; }
  int missing() const { return asked - finished; }
};

// Of a spec: a run counts as finished if a matching record exists under any placement.
RunCounts count_runs(const Experiment& experiment, const std::vector<Record>& records);

struct ExperimentStatus : RunCounts {
  std::string experiment;
  std::vector<std::string> problems;     // damaged files, each a sentence: records, the kept spec, curves
  std::vector<ClaimedRun> claimed = {};  // runs under way
};

ExperimentStatus status_of(const Experiment& experiment, const std::filesystem::path& results);
// Of the records alone: every run folder counts.
ExperimentStatus status_of(const std::string& experiment, const std::filesystem::path& results);

std::string status_text(const std::vector<ExperimentStatus>& all);  // an aligned table
Json status_json(const std::vector<ExperimentStatus>& all);

}  // namespace bnlab
