// The world that a launcher (torchrun, mpirun, srun) announces through environment variables.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "harness/communicator/rendezvous.hpp"

namespace bnlab {

using Variables = std::map<std::string, std::string>;

struct EnvironmentWorld {
  std::string launcher;  // "torchrun", "environment" (plain RANK), "mpirun", "srun"
  std::string reason;    // the variables by which it was found, for `bnlab doctor`
  Rendezvous rendezvous;
  bool one_host = false;  // whether all ranks are known to be on one
  int local_size = 1;  // ranks on this host, which share its cores; all ranks where the launcher does not say
  // How long the ranks wait for each other at first (kMeetingTimeout): jobs on other nodes may start minutes
  // later.
  std::chrono::seconds meeting_timeout{600};
};

Variables process_environment();

// The announced world, or nothing. RANK counts before Open MPI's OMPI_COMM_WORLD_*, these before PMI_*, and
// these before a SLURM step of more than one task (an interactive shell or a batch script is none). Throws
// Error (environment), with all that is missing, where half a world is announced: LOCAL_RANK, or a WORLD_SIZE
// of more than one, without RANK; RANK without WORLD_SIZE; a world without a meeting point. What is set and
// empty is missing. A SLURM step needs no MASTER_ADDR and MASTER_PORT: its first node, and a port made of its
// number, do without; nor does a job of Open MPI whose ranks are on one host.
std::optional<EnvironmentWorld> environment_world(const Variables& variables);

// Throws Error (environment) where MASTER_ADDR leads to this host alone although ranks are on others too.
void check_address(const EnvironmentWorld& world);

// Threads of one rank: OMP_NUM_THREADS, what SLURM gave to the task, or a fair share of the cores that the
// launcher had. A launcher that binds ranks to cores has shared them out already: `usable` by this rank are
// then fewer than `usable_by_launcher`.
int threads_of_rank(const EnvironmentWorld& world, const Variables& variables, int usable,
                    int usable_by_launcher);

// The first host of a list of SLURM's such as "rack[1-2]n[01-04,07],login": "rack1n01".
std::string first_host(const std::string& nodes);

// How many tasks of a step the node of this number has, by a list of SLURM's such as "4(x3),1": four on each
// of the first three nodes, one on the last. Nothing where the list does not say it.
std::optional<int> tasks_of_node(const std::string& tasks_per_node, int node);

// The port where the ranks of a SLURM step, or of a job of Open MPI, meet if the user names none: the same on
// all nodes, another one for each step.
int port_of_step(long job, long step);

}  // namespace bnlab
