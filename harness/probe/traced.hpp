// Training steps of which every rank keeps what it did and when (harness/support/activity.hpp). Needs no
// LibTorch to include.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/communicator/rendezvous.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/support/activity.hpp"

namespace bnlab {

// The events of every rank, in the order of the ranks, of `steps` steps behind `after` others. `run`: one of
// runs_to_measure() for as many ranks. Each host has a clock of its own; where the ranks do not share one,
// all times are taken from the end of a barrier before the steps. Called by every rank of a CPU world.
std::vector<std::vector<ActivityEvent>> traced_steps(const RunSpec& run, const Rendezvous& rendezvous,
                                                     bool one_clock, const std::string& data_dir,
                                                     int64_t after, int64_t steps);

}  // namespace bnlab
