// Which work comes before which, in clocks (races.hpp): what streams, events and waits of the host demand.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/simgpu/machine.hpp"

namespace simgpu {
namespace {

// What this thread of the host knows to be done: what it has waited for, and what anybody knew when it began.
Clock& known() {
  static thread_local Clock clock = machine().host;
  return clock;
}

// LibTorch's allocator knows what any thread has learnt.
void host_touches(const char* what, void* first, size_t bytes, bool gives_back) {
  Machine& m = machine();
  if (!races().wanted) return;
  Lock lock(m.mutex);
  m.host.resize(std::max(m.host.size(), kHostLane + 1));
  ++m.host[kHostLane];
  Clock& here = known();
  here.resize(std::max(here.size(), kHostLane + 1));
  here[kHostLane] = m.host[kHostLane];
  Actor actor{what, kHostLane, gives_back ? here : m.host, gives_back};
  lock.unlock();
  races().touch(actor, {{first, bytes, true}});
}

}  // namespace

Step begun(const Maker& make, Actor& actor, const std::vector<Access>& accesses) {
  if (races().wanted) races().touch(actor, accesses);
  return make();
}

void order(StreamState* stream, Work& work) {
  if (stream->lane == 0) stream->lane = races().add_lane("stream " + std::to_string(stream->id));
  join(stream->clock, known());
  for (const MarkerPtr& wait : work.waits) join(stream->clock, wait->clock);
  if (stream->clock.size() <= stream->lane) stream->clock.resize(stream->lane + 1);
  ++stream->clock[stream->lane];
  work.actor = {work.name, stream->lane, stream->clock, /*gives_back=*/work.sort == Sort::give_back};
  join(stream->clock, work.leaves);
  work.end->clock = stream->clock;
}

void host_learns(const MarkerPtr& end) {
  if (end && races().wanted) {
    join(known(), end->clock);
    join(machine().host, end->clock);
  }
}

void host_takes(void* first, size_t bytes) {
  host_touches("taking pinned memory", first, bytes, false);
}

void host_gives_back(void* first, size_t bytes) {
  host_touches("giving pinned memory back", first, bytes, true);
}

}  // namespace simgpu
