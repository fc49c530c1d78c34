// What a step of SLURM (srun) says of its nodes through the environment.
#pragma once

#include <optional>
#include <string>

namespace bnlab {

// The first host of a list such as "rack[1-2]n[01-04,07],login": "rack1n01".
std::string first_host(const std::string& nodes);

// How many tasks the node of this number has, by a list such as "4(x3),1": four on each of the first three nodes, one on
// the last. Nothing where the list does not say it.
std::optional<int> tasks_of_node(const std::string& tasks_per_node, int node);

// The port where a step's ranks meet if the user names none: the same on all nodes, another one for each step.
int port_of_step(long job, long step);

}  // namespace bnlab
