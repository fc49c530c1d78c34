#include "harness/communicator/host/environment_world.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <sstream>
#include <string_view>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/components/parameters.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

// The variables in which one launcher tells a process its place. Earlier rows win.
struct Announcement {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};

constexpr Announcement kAnnouncements[] = {
    {"environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
};
constexpr std::string_view kSlurm = "srun";
constexpr const char* kOpenMpiJob = "OMPI_MCA_ess_base_jobid";
constexpr const char* kAddress = "MASTER_ADDR";
constexpr const char* kPort = "MASTER_PORT";

std::string text_of(const Variables& variables, const std::string& name) {
  const auto found = variables.find(name);
  return found == variables.end() ? "" : found->second;
}

// A variable that is set and empty tells as little as one that is not set.
bool has(const Variables& variables, const std::string& name) {
  return !text_of(variables, name).empty();
}

int number(const Variables& variables, const std::string& name) {
  const std::string text = text_of(variables, name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw Error(Error::Kind::environment, name + ": expected a number, got '" + text + "'");
  return value;
}

// The number that a variable begins with, or nothing.
template <class Number = int>
std::optional<Number> number_if_any(const Variables& variables, const std::string& name) {
  const std::string text = text_of(variables, name);
  Number value = 0;
  const bool read = std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
  return read && value >= 0 ? std::optional(value) : std::nullopt;
}

// Throws Error where a variable is missing that the announced world needs: each rank would be a world of its
// own.
void require(const Variables& variables, const Announcement& found, const std::vector<std::string>& needed) {
  std::vector<std::string> set, missing;
  for (const char* name : {found.rank, found.size, found.local_rank, found.local_size})
    if (has(variables, name)) set.emplace_back(name);
  for (const std::string& name : needed)
    if (!has(variables, name)) missing.push_back(name + (name == kAddress ? " (the host of rank 0)" : ""));
  if (!missing.empty()) {
    throw Error(Error::Kind::environment, "half a world is announced: " + joined(set) + " set, " +
                                              joined(missing) +
                                              " missing or empty; set these, too, or unset " + joined(set) +
                                              " to run alone, or give bnlab --ranks N, which ignores them");
  }
}

enum class Announced { nothing, half, all };

Announced announced_by(const Announcement& candidate, const Variables& variables) {
  const bool rank = has(variables, candidate.rank), size = has(variables, candidate.size);
  if (candidate.launcher == kSlurm) {
    // SLURM sets SLURM_PROCID in shells too; only a step of several tasks is a world.
    const std::string tasks = text_of(variables, candidate.local_size);
    const bool several =
        size ? number(variables, candidate.size) > 1
             : (!tasks.empty() && tasks != "1") || number_if_any(variables, candidate.rank).value_or(0) > 0;
    return !several ? Announced::nothing : rank && size ? Announced::all : Announced::half;
  }
  // srun --mpi=pmi2 says the same twice, and SLURM's own variables know the nodes.
  if (std::string_view(candidate.rank) == "PMI_RANK" && has(variables, "SLURM_STEP_NUM_TASKS") &&
      text_of(variables, "SLURM_PROCID") == text_of(variables, "PMI_RANK") &&
      text_of(variables, "SLURM_STEP_NUM_TASKS") == text_of(variables, "PMI_SIZE")) {
    return Announced::nothing;
  }
  if (rank && size) return Announced::all;
  const bool alone = size && number(variables, candidate.size) <= 1;
  const bool some =
      rank || size || has(variables, candidate.local_rank) || has(variables, candidate.local_size);
  return some && !alone ? Announced::half : Announced::nothing;
}

// Whether all that one says of rank and size the other says, too: a job's script may export WORLD_SIZE for
// ranks that srun or mpirun tells all.
bool agrees(const Announcement& half, const Announcement& all, const Variables& variables) {
  const auto same = [&](const char* some, const char* other) {
    return !has(variables, some) || text_of(variables, some) == text_of(variables, other);
  };
  return same(half.rank, all.rank) && same(half.size, all.size);
}

// The world that the first launcher announces. Throws Error where one has announced half of another.
const Announcement* announced(const Variables& variables) {
  const Announcement* half = nullptr;
  for (const Announcement& candidate : kAnnouncements) {
    const Announced found = announced_by(candidate, variables);
    if (found == Announced::all && (half == nullptr || agrees(*half, candidate, variables)))
      return &candidate;
    if (found != Announced::nothing && half == nullptr) half = &candidate;
  }
  if (half != nullptr) require(variables, *half, {half->rank, half->size});
  return nullptr;
}

// The ranks on this host, where the launcher tells.
std::optional<int> ranks_here(const Variables& variables, const Announcement& found) {
  if (found.launcher != kSlurm) return number_if_any(variables, found.local_size);
  return tasks_of_node(text_of(variables, found.local_size),
                       number_if_any(variables, "SLURM_NODEID").value_or(0));
}

// What a launcher says of the meeting point by itself: a step of SLURM all, a job of Open MPI where its ranks
// are on one host. The port is made of the job's number.
struct MeetingPoint {
  std::string address;
  std::optional<int> port;
};

MeetingPoint known_meeting_point(const Variables& variables, const Announcement& found,
                                 const EnvironmentWorld& world) {
  MeetingPoint known;
  const bool one_host = world.local_size == world.rendezvous.size;
  if (found.launcher == kSlurm) {
    const std::string nodes = text_of(variables, "SLURM_STEP_NODELIST");
    const auto job = number_if_any<long>(variables, "SLURM_JOB_ID");
    known.address = one_host && !nodes.empty() ? "127.0.0.1" : first_host(nodes);
    if (job && !nodes.empty())
      known.port = port_of_step(*job, number_if_any(variables, "SLURM_STEP_ID").value_or(0));
  } else if (const auto job = number_if_any<long>(variables, kOpenMpiJob);
             job && one_host && has(variables, found.local_size)) {
    known = {"127.0.0.1", port_of_step(*job, 0)};
  }
  return known;
}

// MASTER_ADDR and MASTER_PORT, and where they are not set, what the launcher says.
void set_meeting_point(const Variables& variables, const Announcement& found, EnvironmentWorld& world) {
  const MeetingPoint known = known_meeting_point(variables, found, world);
  std::vector<std::string> needed;
  if (known.address.empty()) needed.emplace_back(kAddress);
  if (!known.port) needed.emplace_back(kPort);
  require(variables, found, needed);
  Rendezvous& place = world.rendezvous;
  place.address = has(variables, kAddress) ? text_of(variables, kAddress) : known.address;
  if (const std::string problem = address_problem(place.address); !problem.empty())
    throw Error(Error::Kind::environment, std::string(kAddress) + ": " + problem);
  place.port = has(variables, kPort) ? number(variables, kPort) : *known.port;
  if (place.port < 1 || place.port > 65535) {
    throw Error(Error::Kind::environment,
                "MASTER_PORT: expected a port from 1 to 65535, got " + std::to_string(place.port));
  }
}

}  // namespace

Variables process_environment() {
  Variables variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t equals = text.find('=');
    variables[text.substr(0, equals)] = equals == std::string::npos ? "" : text.substr(equals + 1);
  }
  return variables;
}

std::optional<EnvironmentWorld> environment_world(const Variables& variables) {
  const Announcement* found = announced(variables);
  if (found == nullptr) return std::nullopt;
  EnvironmentWorld world;
  const bool torchrun = has(variables, "TORCHELASTIC_RUN_ID");
  world.launcher = torchrun ? "torchrun" : found->launcher;
  Rendezvous& place = world.rendezvous;
  place.rank = number(variables, found->rank);
  place.size = number(variables, found->size);
  if (place.rank >= place.size) {
    throw Error(Error::Kind::environment, std::string(found->rank) + " is " + std::to_string(place.rank) +
                                              ", but " + found->size + " is only " +
                                              std::to_string(place.size));
  }
  world.reason = std::string(found->rank) + "=" + std::to_string(place.rank) + ", " + found->size + "=" +
                 std::to_string(place.size);
  place.local_rank = has(variables, found->local_rank) ? number(variables, found->local_rank) : 0;
  const std::optional<int> local_size = ranks_here(variables, *found);
  world.local_size = std::clamp(local_size.value_or(place.size), 1, place.size);
  if (place.size > 1) set_meeting_point(variables, *found, world);
  world.one_host = is_loopback(place.address) || (local_size && world.local_size == place.size);
  place.store_exists = text_of(variables, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (has(variables, kMeetingTimeout))
    world.meeting_timeout = std::chrono::seconds(std::max(1, number(variables, kMeetingTimeout)));
  return world;
}

void check_address(const EnvironmentWorld& world) {
  const Rendezvous& place = world.rendezvous;
  if (world.local_size < place.size && is_loopback(address_towards(place.address))) {
    throw Error(Error::Kind::environment,
                "MASTER_ADDR is " + place.address + ", which is this host's loopback address, but only " +
                    std::to_string(world.local_size) + " of " + std::to_string(place.size) +
                    " ranks are on this host; set it to an address that the other hosts reach");
  }
}

int threads_of_rank(const EnvironmentWorld& world, const Variables& variables, int usable,
                    int usable_by_launcher) {
  if (const auto chosen = number_if_any(variables, "OMP_NUM_THREADS")) return std::max(1, *chosen);
  const bool slurm = world.launcher == kSlurm;
  if (const auto per_task = number_if_any(variables, "SLURM_CPUS_PER_TASK"); slurm && per_task)
    return std::clamp(*per_task, 1, usable);
  const auto on_node = slurm ? number_if_any(variables, "SLURM_CPUS_ON_NODE") : std::nullopt;
  const int shared = on_node.value_or(std::max(usable, usable_by_launcher)) / world.local_size;
  return std::clamp(shared, 1, usable);
}

std::string first_host(const std::string& nodes) {
  std::string host;
  for (size_t at = 0; at < nodes.size() && nodes[at] != ','; ++at) {
    if (nodes[at] != '[') {
      host += nodes[at];
      continue;
    }
    const size_t first_ends = nodes.find_first_of("-,]", at);
    host += nodes.substr(at + 1, first_ends - at - 1);
    at = nodes.find(']', at);
    if (at == std::string::npos) break;
  }
  return host;
}

std::optional<int> tasks_of_node(const std::string& tasks_per_node, int node) {
  std::istringstream list(tasks_per_node);
  for (std::string entry; std::getline(list, entry, ',');) {
    int tasks = 0, nodes = 1;
    if (std::sscanf(entry.c_str(), "%d(x%d)", &tasks, &nodes) < 1 || tasks < 1) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

int port_of_step(long job, long step) {
  constexpr long kFirst = 10000, kPorts = 20000;  // below those that systems give away by themselves
  return static_cast<int>(kFirst + (7 * job + step) % kPorts);
}

}  // namespace bnlab
