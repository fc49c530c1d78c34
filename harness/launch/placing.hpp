// Where each run is computed: a spec's own placement, else the command line, else this machine's devices.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/cores.hpp"
#include "harness/launch/launch.hpp"
#include "harness/store/run_folder.hpp"

namespace bnlab {

struct PlacedRun {
  RunSpec spec;
  Placement placement;
  std::string folder;
  int threads = 1;                 // per rank
  std::vector<int> gpus;           // of each rank, once the run starts; empty on the CPU
  std::vector<std::string> notes;  // for the record
  bool afresh = false;             // start from the beginning, whatever checkpoints there are
  std::string seen = {};           // when the finished record that is there was begun; empty: none is there
  Json inputs = {};  // what the run reads (harness/store/inputs.hpp); null until somebody looked
};

// The GPUs of this machine, for runs side by side.
class GpuShares {
 public:
  explicit GpuShares(int gpus) : runs_(static_cast<size_t>(gpus)) {}
  // Those with the fewest runs on them, the lowest numbers first; different ones as long as there are enough.
  std::vector<int> take(int ranks);
  void give_back(const std::vector<int>& gpus);

 private:
  std::vector<int> runs_;  // on each GPU
};

// Places the runs in order. `gpus` counts the visible GPUs and is asked only where it matters; `cores` are
// shared by the ranks of `options.jobs` runs, where neither spec nor options say how many threads a rank has.
// Each sentence of `remarks` is something the user did not ask for in these words (ranks lowered to a
// divisor, the CPU for want of GPUs, a spec that decides for itself), said once.
std::vector<PlacedRun> place_runs(const Experiment& experiment, std::vector<RunSpec> runs,
                                  const LaunchOptions& options, const std::function<int()>& gpus, int cores,
                                  std::vector<std::string>& remarks);

// How many of these runs go side by side: options.jobs, or with kAutoJobs as many as have GPUs, or on the CPU cores, of
// their own; at least 1.
int jobs_side_by_side(const Experiment& experiment, const std::vector<RunSpec>& runs,
                      const LaunchOptions& options, const std::function<int()>& gpus, int cores);

}  // namespace bnlab
