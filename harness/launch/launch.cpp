#include "harness/launch/launch.hpp"

#include "harness/error.hpp"
#include "harness/launch/environment_world.hpp"
#include "harness/launch/rank_settings.hpp"

namespace bnlab {

void LaunchSummary::count(Status status) {
  if (status == Status::ok) {
    ++finished;
  } else if (status != Status::interrupted) {
    ++failed;
  }
}

LaunchSummary launch(const Experiment& experiment, const LaunchRequest& request) {
  if (request.jobs < 1 && request.jobs != kAutoJobs) {
    throw Error(Error::Kind::usage, "--jobs: expected at least 1, got " + std::to_string(request.jobs));
  }
  const auto world = joined_world(request);
  return world ? launch_in_world(experiment, request, *world) : launch_own_ranks(experiment, request);
}

std::optional<EnvironmentWorld> joined_world(const LaunchRequest& request) {
  if (request.ranks > 0) {  // the user's own word comes before the environment's
    return std::nullopt;
  }
  auto world = environment_world(process_environment());
  if (world) {
    start_anew_with(rank_settings());
    check_address(*world);
  }
  return world;
}

}  // namespace bnlab
