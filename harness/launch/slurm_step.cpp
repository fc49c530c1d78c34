#include "harness/launch/slurm_step.hpp"

#include <cstdio>
#include <sstream>

namespace bnlab {

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
    if (at == std::string::npos) {
      break;
    }
  }
  return host;
}

std::optional<int> tasks_of_node(const std::string& tasks_per_node, int node) {
  std::istringstream list(tasks_per_node);
  for (std::string entry; std::getline(list, entry, ',');) {
    int tasks = 0, nodes = 1;
    if (std::sscanf(entry.c_str(), "%d(x%d)", &tasks, &nodes) < 1 || tasks < 1) {
      return std::nullopt;
    }
    if (node < nodes) {
      return tasks;
    }
    node -= nodes;
  }
  return std::nullopt;
}

int port_of_step(long job, long step) {
  constexpr long kFirst = 10000, kPorts = 20000;  // below those that systems give away by themselves
  return static_cast<int>(kFirst + (7 * job + step) % kPorts);
}

}  // namespace bnlab
