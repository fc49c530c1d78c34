// Where each run is computed: at the spec's own placement, else as the command line says, else as the runs of
// its folder were started last, else on the devices that this machine has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "harness/communicator/host/dealt_gpus.hpp"
#include "harness/launch/launch.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/support/cores.hpp"

namespace bnlab {

// What was found about the machine, and about the world of another launcher where this process is a rank of
// one.
struct WorldFacts {
  int ranks = 0;  // in the launcher's world, whose ranks every run has all; 0: bnlab starts the ranks itself
  bool one_host = true;       // whether one host has all ranks
  int nodes = 1;              // machines that the ranks are spread over, as far as known
  int threads = 0;            // what the launcher gives each rank; 0: nobody gives any
  int cores = 1;              // usable by this process
  std::function<int()> gpus;  // counts the visible GPUs; asked only where it matters

  bool joined() const { return ranks > 0; }  // whether the ranks are those of a launcher such as torchrun
};

// The facts where bnlab starts the ranks itself.
WorldFacts this_machine();

// Which parts of a placement the command line names, or the world of a launcher. A run that ended ok on any
// placement which agrees with these and with the spec is done.
struct NamedParts {
  bool ranks = false, device = false, exchange = false;
  bool by_launcher = false;  // it is the launcher that names the ranks
};

struct PlacedRun {
  RunSpec spec;
  Placement placement;
  NamedParts named = {};
  std::string folder;                // RESULTS/EXPERIMENT/RUN_ID/PLACEMENT
  int threads = 1;                   // per rank
  std::vector<std::string> notes;    // for the record
  bool from_scratch = false;         // the run starts from the beginning, whatever checkpoints there are
  std::string seen_started_at = {};  // when the finished record that is there was begun; empty: none is there
  Json inputs = {};  // what the run reads (harness/store/inputs.hpp); null until somebody looked

  bool on_gpus() const { return placement.device == Device::cuda; }
};

// The GPUs of this machine, for runs side by side.
class GpuShares {
 public:
  explicit GpuShares(int gpus) : runs_(static_cast<size_t>(gpus)) {}
  // The GPUs with the fewest runs on them, the lowest numbers first; different ones as long as there are
  // enough.
  std::vector<int> take(int ranks);
  void give_back(const std::vector<int>& gpus);

 private:
  std::vector<int> runs_;  // on each GPU
};

// Which GPU each rank of a launcher's world takes; the ranks tell each other what they see. Called by every
// rank. Throws Error (environment) where some see none, unless `device` asks for the CPU.
DealtGpus agree_on_gpus(const EnvironmentWorld& world, std::optional<Device> device);

// Places the runs in order. The cores are shared by the ranks of `request.jobs` runs, where nobody says how
// many threads a rank has. Each sentence of `remarks` tells, once, what the user did not ask for in these
// words: ranks lowered to a divisor, the CPU for want of GPUs, a spec that decides for itself.
std::vector<PlacedRun> place_runs(const Experiment& experiment, std::vector<RunSpec> runs,
                                  const LaunchRequest& request, const WorldFacts& facts,
                                  std::vector<std::string>& remarks);

// Keeps beside the results what the command line, or the launcher's world, says of where these runs start,
// for calls that say nothing.
void remember_placement(const Experiment& experiment, const std::vector<PlacedRun>& start,
                        const LaunchRequest& request);

// How many of these runs go side by side: request.jobs, or with kAutoJobs as many as have GPUs of their own,
// on the CPU cores of their own; at least 1.
int jobs_side_by_side(const Experiment& experiment, const std::vector<RunSpec>& runs,
                      const LaunchRequest& request, const WorldFacts& facts);

}  // namespace bnlab
