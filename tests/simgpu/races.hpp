// Whether two pieces of work touch the same memory with no order between them. What is asked is the order
// that events, streams and host waits demand, not the one in which the work happens to be done: a race is
// told whether or not it has changed a number. It is a line on stderr and in a file of the process in the
// folder SIMGPU_RACES, which turns all this on.
//
// Every stream is a lane, and so are the host and each stream's part of a graph. A clock says how much of
// each lane's work comes before. Each four bytes of memory have a state: who wrote them last, and who has
// read them since. (This is the FastTrack algorithm by Flanagan and Freund, 2009.)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tests/simgpu/simgpu.hpp"

namespace simgpu {

using Clock = std::vector<uint32_t>;  // by lanes
void join(Clock& clock, const Clock& other);

constexpr size_t kHostLane = 0;

// A piece of work that is done.
struct Actor {
  std::string name;
  size_t lane = kHostLane;
  Clock clock;  // what comes before it, and itself
  bool gives_back = false;
  uint32_t id = 0;  // once it has touched something
};

class Races {
 public:
  Races();

  const bool wanted;
  size_t add_lane(std::string name);
  void touch(Actor& actor, const std::vector<Access>& accesses);
  // Of the thread that keeps the mutex of this.
  void touch(Actor& actor, const void* first, size_t bytes, bool writes);
  void tell(const std::string& what);

  std::mutex mutex;

 private:
  struct Toucher {
    std::string name;
    size_t lane;
    uint32_t tick;
    bool gives_back;
  };
  struct State {
    uint32_t writer = 0;
    std::vector<uint32_t> readers;
  };
  struct Change {
    uint32_t from = 0, to = 0;
  };
  uint32_t changed(uint32_t state, Actor& actor, bool writes);
  bool is_before(uint32_t toucher, const Actor& actor) const;
  std::string described(const Toucher& toucher, bool writes) const;
  void tell_pair(uint32_t earlier, bool earlier_writes, const Actor& actor, bool writes);

  std::deque<std::string> lanes_;
  std::deque<Toucher> touchers_{{}};  // number 0 is nobody
  std::deque<State> states_{{}};      // number 0 is that of fresh memory
  uint32_t actor_ = 0;                // of the changes that are known
  std::unordered_map<uint32_t, uint32_t> known_[2];
  std::array<Change, 64> last_[2];  // of them, each at the last digits of `from`
  std::set<std::string> told_;
};

Races& races();

// While this lives, `touched` of this thread means the actor.
class Acting {
 public:
  explicit Acting(Actor& actor);
  ~Acting();
  Acting(const Acting&) = delete;
  Acting& operator=(const Acting&) = delete;

 private:
  Actor* before_;
};
Actor* acting();  // null if nobody

}  // namespace simgpu
