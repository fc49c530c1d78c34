#include "harness/probe/probe.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/world.hpp"
#include "harness/probe/collectives.hpp"
#include "harness/probe/sites.hpp"
#include "harness/probe/steps.hpp"
#include "harness/probe/turns.hpp"
#include "harness/store/environment.hpp"
#include "harness/support/mapped.hpp"
#include "harness/training/libraries.hpp"

namespace bnlab {
namespace {

// Shares of the time that is asked for.
constexpr double kKernels = 0.06, kRoutes = 0.14, kStepsShare = 0.5;
// Where steps are measured, too, both they and the collectives are in so many rounds: memory and clock drift
// within minutes, and a step would be predicted by exchanges of another time.
constexpr int kRounds = 3;

Json load() {
  double average = 0;
  return getloadavg(&average, 1) == 1 ? Json(average) : Json();
}

Json fabric_of(const ProbeRequest& request, const Rendezvous& rendezvous) {
  const Json libraries = library_versions();
  Json fabric = {{"device", name_of(request.device)},
                 {"ranks", rendezvous.size},
                 {"nodes", request.nodes},
                 {"threads_per_rank", request.threads},
                 {"launcher", request.launcher},
                 {"added_delay_s", rendezvous.delay.seconds},
                 {"added_bytes_per_s", rendezvous.delay.bytes_per_s},
                 {"environment", environment_record(libraries)}};
  if (request.device == Device::cuda) fabric["peers"] = peers_of_gpus();
  return fabric;
}

class Probing {
 public:
  Probing(const ProbeRequest& request, const Rendezvous& rendezvous)
      : request_(request),
        rendezvous_(rendezvous),
        probe_{{"schema", kProbeSchema},       {"fabric", fabric_of(request, rendezvous)},
               {"load_before", load()},        {"kernels", nullptr},
               {"collectives", Json::array()}, {"routes", Json::array()},
               {"steps", Json::array()}} {}

  Json run() {
    const double share = request_.seconds / static_cast<double>(request_.exchanges.size());
    const double until = seconds_now() + request_.seconds;
    auto left = static_cast<double>(request_.exchanges.size());
    for (const Exchange exchange : request_.exchanges)
      in_world(exchange, std::max((until - seconds_now()) / left--, share));  // what others left, too
    probe_["load_after"] = load();
    return rendezvous_.rank == 0 ? probe_ : Json();
  }

 private:
  void in_world(Exchange exchange, double seconds) {
    Rendezvous at = rendezvous_;
    at.exchange = exchange;
    const std::string name =
        request_.device == Device::cuda && exchange != Exchange::peers ? "nccl" : name_of(exchange);
    at.prefix = "probe/" + name;
    const auto world = join_world(at, request_.device == Device::cuda ? at::kCUDA : at::kCPU);
    tell("kernels");
    if (probe_["kernels"].is_null()) probe_["kernels"] = measure_kernels(*world, seconds * kKernels);
    if (world->size() > 1) {
      tell("routes by " + name);
      append("routes", measure_routes(*world, name, seconds * kRoutes));
    }
    const double of_steps = request_.runs.empty() ? 0 : kStepsShare;
    const double of_collectives = 1 - kKernels - kRoutes - of_steps;
    const int rounds = request_.runs.empty() ? 1 : kRounds;
    CollectiveSamples collectives;
    std::vector<StepSamples> steps(request_.runs.size());
    for (int round = 0; round < rounds; ++round) {
      if (world->size() > 1) {
        tell("collectives by " + name);
        measure_collectives(*world, name, seconds * of_collectives / rounds, request_.largest_bytes,
                            collectives);
      }
      one_round_of_steps(*world, name, seconds * of_steps / rounds, steps);
    }
    append("collectives", rows_of(collectives, name, world->size()));
    for (const StepSamples& of_run : steps) {
      Json step = row_of(of_run);
      step["exchange"] = name;
      probe_["steps"].push_back(step);
    }
    world->shutdown();
  }

  void one_round_of_steps(World& world, const std::string& name, double seconds,
                          std::vector<StepSamples>& steps) {
    const double until = seconds_now() + seconds;
    for (size_t i = 0; i < steps.size(); ++i) {
      const RunSpec& run = request_.runs[i];
      tell("steps of " + label(run.strategy) + " by " + name);
      const double left = std::max(until - seconds_now(), 0.0);
      measure_steps(run, world, request_.data_dir, left / static_cast<double>(steps.size() - i), steps[i]);
    }
  }

  void append(const char* key, const Json& rows) {
    for (const Json& row : rows) probe_[key].push_back(row);
  }

  void tell(const std::string& what) const {
    if (rendezvous_.rank == 0) std::cerr << "measuring " << what << std::endl;
  }

  const ProbeRequest& request_;
  const Rendezvous& rendezvous_;
  Json probe_;
};

}  // namespace

Json run_probe(const ProbeRequest& request, const Rendezvous& rendezvous) {
  return Probing(request, rendezvous).run();
}

}  // namespace bnlab
