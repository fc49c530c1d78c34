// Runs an experiment: skips what is finished, starts the ranks of the rest, watches them, records every
// outcome. A failed run never ends the matrix. This needs no LibTorch.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

struct EnvironmentWorld;

inline constexpr int kAutoJobs = 0;

struct LaunchOptions {
  int ranks = 0;       // 0: one per GPU, one on the CPU; lowered to a divisor of the towers, which is said
  std::string device;  // "cpu", "cuda" or "" (cuda if there is a GPU for every rank)
  std::optional<Exchange> exchange;  // of CPU ranks; nothing: shared memory, where one host has all ranks
  int nodes = 1;                     // machines that the ranks are spread over, as far as known
  bool one_host = true;              // whether it has
  bool joined = false;               // the ranks are those of a launcher such as torchrun
  int jobs = 1;                      // independent runs side by side, or kAutoJobs: as many as fit
  std::vector<std::string> only;     // "strategy=sync,per_tower", "seed=0": runs that match all of them
  std::string slice;                 // "2/8": of the matrix, every 8th run from the 2nd on
  std::vector<std::string> redo;     // "stale", "failed", "all" or run ids: finished runs that start again
  std::chrono::seconds steal_after{900};  // without a sign of life, another process's run is taken over
  std::string results_dir = "results";
  std::string data_dir;
  std::string command;  // as typed, for the record
  std::string program;  // path of this executable, for the ranks
  int threads = 0;      // per rank; 0: cores / (ranks x jobs), at least 1
};

struct LaunchSummary {
  int finished = 0;                     // ok, in this call
  int failed = 0;                       // any other outcome, in this call
  int skipped = 0;                      // finished before,
  int failed_before = 0;                // of which so many failed:
  std::map<std::string, int> failures;  // so many with this outcome and message;
  std::map<std::string, int> stale;     // and so many are stale, for this reason
  int held = 0;                         // left to other processes, which have them
  bool interrupted = false;
  bool leads = true;  // false on every rank but the first of a world that a launcher such as torchrun made

  void count(Status status);  // a run that has ended
};

// Progress goes to standard error: a line with an ETA on a terminal, plain lines elsewhere.
// Chooses between the two ways below.
LaunchSummary launch(const Experiment& experiment, const LaunchOptions& options);

// The ranks are children of this process, `options.jobs` runs of them side by side.
LaunchSummary launch_own_ranks(const Experiment& experiment, const LaunchOptions& options);

// The world that another launcher made of this process, unless the options ask for ranks of our own. A rank that lacks settings
// starts itself anew first.
std::optional<EnvironmentWorld> joined_world(const LaunchOptions& options);

// This process is one rank of a world that another launcher made, and every process of that world calls this.
// Rank 0 alone reads and writes the results folder.
LaunchSummary launch_in_world(const Experiment& experiment, const LaunchOptions& options,
                              const EnvironmentWorld& world);

}  // namespace bnlab
