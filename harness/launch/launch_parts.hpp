// What the two ways to run a matrix share: with ranks of our own (own_ranks.cpp), or as one rank of a world
// that another launcher made (joined_world.cpp). launch.cpp chooses.
#pragma once

#include <string>
#include <vector>

#include "harness/launch/environment_world.hpp"
#include "harness/launch/launch.hpp"
#include "harness/launch/placing.hpp"
#include "harness/launch/progress.hpp"
#include "harness/records/record.hpp"

namespace bnlab {

LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchOptions& options);

// Called by every process of the world. Rank 0 alone reads and writes the results folder.
LaunchSummary launch_in_world(const Experiment& experiment, const LaunchOptions& options,
                              const EnvironmentWorld& world);

// The record's account of a run, but for its outcome, result and times.
RunAccount begin_account(const Experiment& experiment, const LaunchOptions& options, const PlacedRun& run,
                         const std::string& launcher, const Json& environment);

// Writes record.json, last of all files of the run.
void write_record(const RunAccount& account, const std::string& folder);

// Counts a run that has ended.
void count(LaunchSummary& summary, Status status);

// Empties the folder of a run that is about to start, or makes it.
void empty_folder(const std::string& folder);

double total_work(const std::vector<PlacedRun>& runs);

}  // namespace bnlab
