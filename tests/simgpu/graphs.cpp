// How graphs are replayed.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/simgpu/machine.hpp"

namespace simgpu {

ExecutableGraph* executable(GraphPtr graph) {
  auto* const made = new ExecutableGraph{std::move(graph), nullptr, {}, {}};
  for (const StreamState* stream : made->graph->lanes)
    made->lanes.push_back(races().add_lane("stream " + std::to_string(stream->id) + " in a graph"));
  made->begun.resize(made->lanes.size());
  return made;
}

Step replay(const ExecutableGraph& executable) {
  struct Progress {
    std::vector<Step> steps;
    std::vector<Actor> actors;
    std::vector<char> done;
    size_t left;
    size_t first = 0;  // that is not done
  };
  const auto progress = std::make_shared<Progress>();
  const GraphPtr graph = executable.graph;
  const size_t count = graph->nodes.size();
  progress->steps.resize(count);
  progress->actors.resize(count);
  progress->done.assign(count, 0);
  progress->left = count;
  // The node's own order is what comes before the replay, and what comes before it in the graph.
  const auto actor_of = [lanes = executable.lanes, before = executable.begun](const Node& node) {
    Actor actor{node.name, lanes[node.lane], acting()->clock, node.sort == Sort::give_back};
    for (size_t lane = 0; lane < node.clock.size(); ++lane) {
      if (node.clock[lane] > 0) {
        actor.clock.resize(std::max(actor.clock.size(), lanes[lane] + 1));
        actor.clock[lanes[lane]] = before[lane] + node.clock[lane];
      }
    }
    return actor;
  };
  return [graph, progress, actor_of] {
    Progress& p = *progress;
    for (bool moved = true; moved && p.left > 0;) {
      moved = false;
      for (size_t i = p.first; i < p.done.size(); ++i) {
        const Node& node = graph->nodes[i];
        const auto is_done = [&](int before) { return p.done[static_cast<size_t>(before)] != 0; };
        if (p.done[i] || !std::all_of(node.after.begin(), node.after.end(), is_done)) continue;
        if (!p.steps[i]) p.actors[i] = races().wanted ? actor_of(node) : Actor();
        const Acting now(p.actors[i]);
        if (!p.steps[i]) p.steps[i] = begun(node.make, p.actors[i], node.accesses);
        if (p.steps[i]()) {
          p.done[i] = 1;
          p.steps[i] = nullptr;
          --p.left;
          moved = true;
          while (p.first < p.done.size() && p.done[p.first]) ++p.first;
        }
      }
    }
    return p.left == 0;
  };
}

}  // namespace simgpu
