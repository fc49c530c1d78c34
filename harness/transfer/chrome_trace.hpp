// What all ranks did in some training steps, as a file that Perfetto (ui.perfetto.dev) and chrome://tracing
// show: a process for each rank; and who waited for whom.
#pragma once

#include <string>
#include <vector>

#include "harness/support/activity.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

using ActivityOfRanks = std::vector<std::vector<ActivityEvent>>;

// A collective that a rank entered before the last one had come.
struct Wait {
  int rank = 0, for_rank = 0;
  double seconds = 0;
  std::string collective, where;  // "all_gather", "encoder0.norm1 forward of step 12"
};

// The longest first. The n-th collective of every rank is the same one; ranks that have other collectives, or
// another number of them, wait for nobody that is known.
std::vector<Wait> waits_of(const ActivityOfRanks& ranks);

// {"traceEvents": [...]}, times from the first event on.
Json chrome_trace(const ActivityOfRanks& ranks);

// Seconds of a step, on the mean over ranks and steps, that each kind of thing took: {"step", "data",
// "forward", "backward", "optimizer", "exchange", "waiting"}. Exchanges lie inside the parts, waiting inside
// the exchanges.
Json shares_of(const ActivityOfRanks& ranks);

}  // namespace bnlab
