// The world that a launcher (torchrun, mpirun, srun) announces through environment variables.
#pragma once

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
};

Variables process_environment();

// The announced world, or nothing. Precedence: RANK, then Open MPI's OMPI_COMM_WORLD_*, then PMI_*, then
// a SLURM step of more than one task (an interactive shell or a batch script is none).
// Throws Error (environment) if a world is announced but a variable is missing or no number.
std::optional<EnvironmentWorld> environment_world(const Variables& variables);

}  // namespace bnlab
