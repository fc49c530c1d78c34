// Training steps of a run, timed: by itself in a world whose other ranks do not exist, and beside that in a
// real one.
#pragma once

#include <string>

#include "harness/communicator/world.hpp"
#include "harness/experiment/spec.hpp"
#include "harness/json.hpp"

namespace bnlab {

// own_step() of probe.hpp, in turns with the same step in the real world: {"together_s": its times, ...}.
// Each rank does its own work at the same time as the others. Called by every rank, the same answer on all.
Json own_step_and_together(const RunSpec& run, World& world, const std::string& data_dir, double seconds);

}  // namespace bnlab
