// Which runs are timed together: they have their turns in one world of ranks (training/timing/turns.hpp).
//
// A run with `timing` is timed beside the run of timing.against. Where timing.together names keys, all runs
// of a matrix that differ in these alone are timed in one world, that of the first of them: its timing.with
// says which runs they are, and its record has the times of all. timing.with of the rest is null.
#pragma once

#include <vector>

#include "harness/components/parameters.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

using CheckRun = void (*)(const Json& run, const Problems& reported, Problems& problems);  // check_agreement
// Whether the runs that are timed beside this one are runs, and such as the same ranks can make.
void check_timing(const Json& run, const Problems& reported, CheckRun check, Problems& problems);

// The run of timing.against. `run` has `timing`.
RunSpec timed_beside(const RunSpec& run);
// The runs of timing.with, as the matrix has them.
std::vector<RunSpec> timed_with(const RunSpec& run);

// Gives each run of a matrix the timing.with that timing.together asks for.
void share_worlds(std::vector<RunSpec>& runs);

}  // namespace bnlab
