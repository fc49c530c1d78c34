// Runs an experiment: skips the runs that are finished, starts the ranks of the others, watches them, and
// records every outcome. A failed run never ends the matrix. This needs no LibTorch.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/placement.hpp"
#include "harness/store/attempts.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

struct EnvironmentWorld;

inline constexpr int kAutoJobs = 0;

// What the user asks for on the command line. What is found out about machine and world is WorldFacts
// (placing.hpp).
struct LaunchRequest {
  int ranks =
      0;  // 0: as last time, else one per GPU, one on the CPU; lowered to a divisor of the towers, aloud
  std::optional<Device> device;  // nothing: as last time, else the GPUs, if there is one for every rank
  std::optional<Exchange>
      exchange;              // between ranks on CPUs; nothing: shared memory, where one host has all ranks
  int threads = 0;           // per rank; 0: its share of the cores, or what its launcher gives it
  int jobs = 1;              // independent runs side by side, or kAutoJobs: as many as fit
  bool fresh_ranks = false;  // every run starts its ranks anew
  std::vector<std::string> only;  // "strategy=sync,per_tower", "seed=0": runs that match all of them
  std::string slice;              // "2/8": every 8th run of the matrix from the 2nd on
  std::vector<std::string>
      redo;  // "stale", "disturbed", "failed", "all" or run ids: finished runs that start again
  std::chrono::seconds steal_after = kTakenForDeadAfter;
  std::string results_dir = "results";
  std::string data_dir;
  std::string notify;   // a command of the user's (notify.hpp); empty: none
  std::string command;  // as typed, for the record
  std::string program;  // path of this executable, which the ranks run
};

// How the runs of a matrix ended.
struct LaunchSummary {
  int finished = 0;                     // runs of this call that are ok
  int failed = 0;                       // runs of this call with any other outcome
  int skipped = 0;                      // runs that were finished before
  std::map<std::string, int> done_on;   // the number of those that are ok, by their placement
  int failed_before = 0;                // those of the skipped runs that had failed
  std::map<std::string, int> failures;  // the number of these by "outcome: message"
  std::map<std::string, int> stale;     // the number of skipped runs that are stale, by the reason
  std::set<std::string> to_remake;      // ids of finished runs that were to start again and have not ended
  int disturbed = 0;                    // finished runs that others disturbed while they were timed
  int killed = 0;                       // runs of this call of which somebody killed a rank
  int meanwhile = 0;                    // skipped runs that others finished during this call
  int held = 0;                         // runs that are left to other processes, which have them
  bool interrupted = false;
  bool leads = true;  // false on every rank but the first of a world that a launcher such as torchrun made

  void count(Status status);  // a run that has ended
};

// Chooses between the two ways below. Progress goes to standard error: a line with an ETA on a terminal,
// plain lines elsewhere.
LaunchSummary launch(const Experiment& experiment, const LaunchRequest& request);

// The ranks are children of this process, and `request.jobs` runs of them go side by side.
LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchRequest& request);

// The world of another launcher that this process is a rank of; nothing where there is none, or where the
// user asks for a number of ranks. A rank that has other settings than ranks run with starts itself anew
// first (rank_settings.hpp).
std::optional<EnvironmentWorld> joined_world(const LaunchRequest& request);

// This process is one rank of a world that another launcher made, and every process of that world calls this.
// Rank 0 alone reads and writes the results folder.
LaunchSummary launch_in_world(const Experiment& experiment, const LaunchRequest& request,
                              const EnvironmentWorld& world);

// Runs what chooses the settings of a matrix, before it, and settles the experiment by the scores. The runs
// are made like any others, in RESULTS/NAME-tuning, all of them whatever part of the matrix is asked for;
// those that other processes have are waited for. Nothing runs where the experiment has no `tune`, or where
// its scores are kept already. The experiment stays unsettled where some of the runs failed or were
// interrupted. Every rank of a world that another launcher made calls this, and the scores of rank 0 count.
LaunchSummary tune(Experiment& experiment, const LaunchRequest& request);

}  // namespace bnlab
