#include <unistd.h>

#include <cstdlib>

#include "harness/cli/findings.hpp"
#include "harness/communicator/host/network.hpp"
#include "harness/cores.hpp"
#include "harness/error.hpp"
#include "harness/launch/environment_world.hpp"
#include "harness/launch/rank_settings.hpp"

namespace bnlab {
namespace {

std::string number(int value) {
  return std::to_string(value);
}

Finding meeting(const EnvironmentWorld& world) {
  const Rendezvous& place = world.rendezvous;
  const std::string store = place.store_exists ? "the launcher serves the store" : "rank 0 serves the store";
  Finding finding{"meeting", "at " + place.address + ":" + number(place.port) + ", " + store +
                                 "; ranks wait " + std::to_string(world.meeting_timeout.count()) +
                                 " s for each other (" + kMeetingTimeout + ")"};
  try {
    check_address(world);
  } catch (const Error& error) {
    finding.problem = error.what();
    finding.cure = "export MASTER_ADDR with the name or address that other hosts know rank 0's host by";
  }
  return finding;
}

Finding sockets(const EnvironmentWorld& world) {
  if (world.one_host) {
    return {"exchange", "all ranks are on this host: through memory that they share"};
  }
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    return {"exchange",
            "through sockets on the interface " + std::string(interface) + " (GLOO_SOCKET_IFNAME)"};
  }
  try {
    return {"exchange", "through sockets on " + address_towards(world.rendezvous.address) +
                            ", from where MASTER_ADDR is reached"};
  } catch (const Error& error) {
    return {"exchange", "through sockets", error.what(), "set MASTER_ADDR to the host of rank 0"};
  }
}

Finding threads(const EnvironmentWorld& world, const Variables& variables) {
  const int usable = usable_cores(), of_launcher = usable_cores(getppid());
  const std::string count = number(threads_of_rank(world, variables, usable, of_launcher));
  for (const char* name : {"OMP_NUM_THREADS", "SLURM_CPUS_PER_TASK"}) {
    if (const auto set = variables.find(name); set != variables.end()) {
      return {"threads", count + " per rank (" + name + "=" + set->second + ")"};
    }
  }
  return {"threads", count + " per rank: this one may use " + number(usable) + " cores, the launcher " +
                         number(of_launcher) + ", for " + number(world.local_size) + " ranks on this host"};
}

Finding settings() {
  std::string other;
  for (const auto& [name, value] : settings_to_change(rank_settings())) {
    other += (other.empty() ? "" : ", ") + name;
  }
  return {"settings", other.empty() ? "complete" : "bnlab run starts itself anew once, to set " + other};
}

}  // namespace

std::vector<Finding> findings_of_launcher() {
  const Variables variables = process_environment();
  try {
    const auto world = environment_world(variables);
    if (!world) {
      return {{"launcher", "none announced: bnlab starts the ranks itself"}};
    }
    std::vector<Finding> findings{
        {"launcher", world->launcher + " (" + world->reason + "): this process joins its world; " +
                         number(world->local_size) + " of " + number(world->rendezvous.size) +
                         " ranks are taken to be on this host"}};
    if (world->rendezvous.size > 1) {
      findings.push_back(meeting(*world));
      findings.push_back(sockets(*world));
    }
    findings.push_back(threads(*world, variables));
    findings.push_back(settings());
    return findings;
  } catch (const Error& error) {
    return {{"launcher", "announced, but not usable", error.what(),
             "set what is missing, or give --ranks N to start ranks without the launcher"}};
  }
}

}  // namespace bnlab
