// Which runs of an experiment are claimed, and by whom.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "harness/json.hpp"

namespace bnlab {

struct HeldRun {
  std::string run_id, placement;
  int attempt = 1;
  std::string holder;  // "process 17 on node3 (job 4711) since 2026-11-21T06:30:00Z"
  Json process;        // the same as {"host", "pid", "job", "since"}
  bool died = false;   // as far as it can be seen from here
  double quiet_s = 0;  // since the claim was last renewed, by this machine's clock

  std::string sentence() const;
  Json json() const;
};

// In the order of their folders. Claims that nobody holds are not among them: those of a lost world, and of a process
// that was killed after it had published the run.
std::vector<HeldRun> held_runs(const std::filesystem::path& results, const std::string& experiment);

}  // namespace bnlab
