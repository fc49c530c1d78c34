// What a world that another launcher made can run.
#pragma once

#include <string>
#include <vector>

#include "harness/launch/environment_world.hpp"
#include "harness/launch/placing.hpp"

namespace bnlab {

// The options of the one placement that this world can give: all its ranks, one run at a time.
LaunchOptions options_of_world(LaunchOptions options, const EnvironmentWorld& world);

// Whether the launcher shows this rank one GPU, its own (as SLURM's --gpus-per-task does).
bool has_own_gpu();

// The runs that fit the world, in order; the others are named in `remarks`. Throws Error (usage) if none does.
std::vector<PlacedRun> runs_that_fit(const Experiment& experiment, const LaunchOptions& options,
                                     const EnvironmentWorld& world, std::vector<std::string>& remarks);

}  // namespace bnlab
