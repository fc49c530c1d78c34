#include "harness/launch/world_fit.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "harness/error.hpp"
#include "harness/launch/selection.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {

LaunchOptions options_of_world(LaunchOptions options, const EnvironmentWorld& world) {
  options.ranks = world.rendezvous.size;
  options.one_host = world.one_host;
  options.nodes = world.one_host ? 1 : std::max(1, world.rendezvous.size / world.local_size);
  options.joined = true;
  options.jobs = 1;
  if (options.threads == 0) {
    options.threads = threads_of_rank(world, process_environment(), usable_cores(), usable_cores(getppid()));
  }
  return options;
}

bool has_own_gpu() {
  return visible_gpus() == 1 && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
}

std::vector<PlacedRun> runs_that_fit(const Experiment& experiment, const LaunchOptions& options,
                                     const EnvironmentWorld& world, std::vector<std::string>& remarks) {
  const std::string size = std::to_string(options.ranks);
  std::vector<RunSpec> fitting;
  for (const RunSpec& run : select_runs(experiment.runs, options.only, options.slice)) {
    if (run.ranks.value_or(options.ranks) != options.ranks) {
      remarks.push_back(run.id + " is left out: its spec asks for " + std::to_string(*run.ranks) +
                        " ranks, and this world has " + size);
    } else if (run.towers() % options.ranks != 0) {
      remarks.push_back(run.id + " is left out: the " + size + " ranks of this world do not divide its " +
                        std::to_string(run.towers()) + " towers");
    } else {
      fitting.push_back(run);
    }
  }
  if (fitting.empty() && !remarks.empty()) {
    throw Error(Error::Kind::usage, "no run fits this world: " + remarks.front());
  }
  // The other hosts are taken to have as many GPUs as this one.
  const auto gpus = [&] {
    return has_own_gpu() || visible_gpus() >= world.local_size ? options.ranks : visible_gpus();
  };
  return place_runs(experiment, std::move(fitting), options, gpus, usable_cores(), remarks);
}

}  // namespace bnlab
