// How far an experiment is: counts of its runs by outcome.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/records/record.hpp"

namespace bnlab {

struct ExperimentStatus {
  std::string experiment;
  int total = 0;                        // runs that the spec asks for; without a spec, run folders that exist
  int finished = 0;                     // with a record, whatever the outcome but interrupted
  int failed = 0;                       // finished, and not ok
  int missing = 0;                      // total - finished
  int stale = 0;                        // finished, by an earlier or unknown version of the code
  std::map<std::string, int> outcomes;  // status name -> records, interrupted ones included
  std::vector<std::string> problems;    // records that cannot be read
};

// Of a spec: a run counts as finished if a matching record exists under any placement.
ExperimentStatus status_of(const Experiment& experiment, const std::filesystem::path& results);
// Of the records alone: every run folder counts.
ExperimentStatus status_of(const std::string& experiment, const std::filesystem::path& results);

std::string status_text(const std::vector<ExperimentStatus>& all);  // an aligned table
Json status_json(const std::vector<ExperimentStatus>& all);

}  // namespace bnlab
