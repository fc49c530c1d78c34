// How a run ended, judged from how its ranks ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/launch/process.hpp"
#include "harness/store/record.hpp"
#include "harness/training/rank.hpp"

namespace bnlab {

struct RankEnd {
  std::optional<RankReport> report;  // what it wrote, if it wrote one
  ProcessEnd end;
  bool stopped = false;  // by the launcher, so that its end says nothing
  int order = 0;         // 0 for the first rank seen to end; equal where the order is not known
};

enum class Stop { none, timeout, interrupt };  // why the launcher ended a run, if it did

// The outcome names the first rank that went wrong, not the ranks that failed in consequence. Blamed is, in
// this order: a rank that died; a rank that reports something of its own (oom, error, diverged, an unexpected
// exception); a rank that was silent while others lost contact; a rank that lost contact while no rank was
// silent. The log tail stays empty. `out_of_memory` says that the kernel has killed a process for lack of
// memory during the run.
Outcome judge(const std::vector<RankEnd>& ranks, Stop stop, double timeout_s, bool out_of_memory);

// Throws Error (environment), with the cure, if the run ended because a rank found the disk full or a quota
// used up. That is no verdict on the run, and the runs after it would meet the same.
void refuse_full_disk(const RunSpec& run, const Outcome& outcome);

// The last `lines` lines of a log; empty if there is none.
std::vector<std::string> log_tail(const std::string& file, size_t lines = 20);

// How many processes the kernel has killed for lack of memory in this process's cgroup, so far.
long out_of_memory_kills();

}  // namespace bnlab
