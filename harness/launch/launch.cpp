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

LaunchSummary launch(const Experiment& experiment, const LaunchOptions& options) {
  if (options.jobs < 1) {
    throw Error(Error::Kind::usage, "--jobs: expected at least 1, got " + std::to_string(options.jobs));
  }
  if (options.ranks > 0) {  // the user's own word comes before the environment's
    return launch_own_ranks(experiment, options);
  }
  const auto world = environment_world(process_environment());
  if (!world) {
    return launch_own_ranks(experiment, options);
  }
  start_anew_with(rank_settings());
  check_address(*world);
  return launch_in_world(experiment, options, *world);
}

}  // namespace bnlab
