// How far an experiment is: counts of its runs by outcome.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/queue/held_runs.hpp"
#include "harness/report/failures.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

inline constexpr const char* kConfirmed =
    " of older code that count, because today's has repeated runs of their cells to the last digit";

struct RunCounts {
  int asked = 0;                        // runs that the spec asks for; without a spec, run folders that exist
  int finished = 0;                     // with a record, whatever the outcome but interrupted
  int failed = 0;                       // finished, and ok under no placement
  int stale = 0;                        // finished, but code, data or weights have changed since
  std::map<std::string, int> outcomes;  // status name -> runs, interrupted ones included
  std::vector<Failure> failures;        // of the failed ones
  std::map<std::string, int> stale_reasons;  // why -> runs
  int confirmed = 0;  // by older code, but today's has repeated runs like them (confirming.hpp)

  int ok() const { return finished - failed; }
  int missing() const { return asked - finished; }
};

// Of a spec: a run counts as finished if a matching record exists under any placement.
RunCounts count_runs(const Experiment& experiment, const std::vector<Record>& records);

struct ExperimentStatus : RunCounts {
  std::string experiment;
  std::vector<std::string> problems;  // records that cannot be read
  std::vector<HeldRun> held = {};     // runs under way
};

ExperimentStatus status_of(const Experiment& experiment, const std::filesystem::path& results);
// Of the records alone: every run folder counts.
ExperimentStatus status_of(const std::string& experiment, const std::filesystem::path& results);

std::string status_text(const std::vector<ExperimentStatus>& all);  // an aligned table
Json status_json(const std::vector<ExperimentStatus>& all);

}  // namespace bnlab
