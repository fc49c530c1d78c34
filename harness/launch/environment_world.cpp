#include "harness/launch/environment_world.hpp"

#include <unistd.h>

#include <charconv>
#include <string_view>

#include "harness/communicator/loopback_socket.hpp"
#include "harness/error.hpp"

namespace bnlab {
namespace {

// How one launcher names a process's place. Earlier rows win.
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
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"},
};

bool has(const Variables& variables, const std::string& name) {
  return variables.count(name) != 0;
}

int number(const Variables& variables, const std::string& name, const Announcement& found) {
  if (!has(variables, name)) {
    throw Error(Error::Kind::environment, std::string(found.rank) +
                                              " is set, so a launcher is at work, but " + name +
                                              " is not; set it, or give --ranks to ignore the launcher");
  }
  const std::string& text = variables.at(name);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) {
    throw Error(Error::Kind::environment, name + ": expected a number, got '" + text + "'");
  }
  return value;
}

const Announcement* announced(const Variables& variables) {
  for (const Announcement& candidate : kAnnouncements) {
    if (!has(variables, candidate.rank)) {
      continue;
    }
    // SLURM sets SLURM_PROCID in shells too; only a step of several tasks is a world.
    if (std::string_view(candidate.launcher) == "srun" &&
        (!has(variables, candidate.size) || number(variables, candidate.size, candidate) < 2)) {
      continue;
    }
    return &candidate;
  }
  return nullptr;
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
  if (found == nullptr) {
    return std::nullopt;
  }
  EnvironmentWorld world;
  const bool torchrun = has(variables, "TORCHELASTIC_RUN_ID");
  world.launcher = torchrun ? "torchrun" : found->launcher;
  Rendezvous& place = world.rendezvous;
  place.rank = number(variables, found->rank, *found);
  place.size = number(variables, found->size, *found);
  if (place.rank >= place.size) {
    throw Error(Error::Kind::environment, std::string(found->rank) + " is " + std::to_string(place.rank) +
                                              ", but " + found->size + " is only " +
                                              std::to_string(place.size));
  }
  world.reason = std::string(found->rank) + "=" + std::to_string(place.rank) + ", " + found->size + "=" +
                 std::to_string(place.size);
  place.local_rank = has(variables, found->local_rank) ? number(variables, found->local_rank, *found) : 0;
  world.local_size =
      has(variables, found->local_size) ? number(variables, found->local_size, *found) : place.size;
  if (place.size > 1) {
    if (!has(variables, "MASTER_ADDR")) {
      throw Error(Error::Kind::environment,
                  std::string(found->rank) +
                      " is set, so a launcher is at work, but MASTER_ADDR is not; set it to the host of "
                      "rank 0, or give --ranks to ignore the launcher");
    }
    place.address = variables.at("MASTER_ADDR");
    place.port = number(variables, "MASTER_PORT", *found);
  }
  // SLURM's number of tasks per node may be that of the batch job and not of this step.
  world.one_host =
      is_loopback(place.address) ||
      (world.launcher == "srun"
           ? has(variables, "SLURM_STEP_NUM_NODES") && variables.at("SLURM_STEP_NUM_NODES") == "1"
           : has(variables, found->local_size) && world.local_size == place.size);
  const auto agent = variables.find("TORCHELASTIC_USE_AGENT_STORE");
  place.store_exists = agent != variables.end() && agent->second == "True";
  return world;
}

}  // namespace bnlab
