#include "tests/simgpu/races.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "tests/simgpu/memory.hpp"

namespace simgpu {
namespace {

thread_local Actor* actor_now = nullptr;
Actor* watched = nullptr;  // of the thread that keeps the mutex of the races

}  // namespace

void join(Clock& clock, const Clock& other) {
  if (clock.size() < other.size()) clock.resize(other.size());
  for (size_t lane = 0; lane < other.size(); ++lane) clock[lane] = std::max(clock[lane], other[lane]);
}

Races::Races() : wanted(std::getenv("SIMGPU_RACES") != nullptr) {
  add_lane("the host");
}

size_t Races::add_lane(std::string name) {
  const std::lock_guard lock(mutex);
  lanes_.push_back(std::move(name));
  return lanes_.size() - 1;
}

bool Races::is_before(uint32_t toucher, const Actor& actor) const {
  const Toucher& t = touchers_[toucher];
  return t.lane < actor.clock.size() && actor.clock[t.lane] >= t.tick;
}

std::string Races::described(const Toucher& toucher, bool writes) const {
  return toucher.name + " (" + lanes_[toucher.lane] + (writes ? ", write)" : ", read)");
}

void Races::tell(const std::string& what) {
  if (!told_.insert(what).second) return;
  std::fprintf(stderr, "simgpu %d: %s\n", getpid(), what.c_str());
  std::ofstream(std::string(std::getenv("SIMGPU_RACES")) + "/" + std::to_string(getpid()) + ".txt",
                std::ios::app)
      << what << std::endl;
  note("where that was found");
}

void Races::tell_pair(uint32_t earlier, bool earlier_writes, const Actor& actor, bool writes) {
  tell(described(touchers_[earlier], earlier_writes) + " and " + described(touchers_[actor.id], writes) +
       " touch the same memory with no order between them");
}

uint32_t Races::changed(uint32_t from, Actor& actor, bool writes) {
  const auto [found, is_new] = known_[writes].try_emplace(from, from);
  if (!is_new) return found->second;
  const State& state = states_[from];
  const bool own = state.writer == actor.id;
  if (state.writer != 0 && !own) {
    if (!is_before(state.writer, actor))
      tell_pair(state.writer, true, actor, writes);
    else if (!writes && touchers_[state.writer].gives_back)
      tell(described(touchers_[actor.id], false) + " touches memory that was given back");
  }
  if (!writes) {
    if (own || std::ranges::count(state.readers, actor.id) > 0) return from;
    State read{state.writer, {actor.id}};
    std::ranges::copy_if(state.readers, std::back_inserter(read.readers),
                         [&](uint32_t reader) { return !is_before(reader, actor); });
    states_.push_back(std::move(read));
  } else {
    for (uint32_t reader : state.readers)
      if (reader != actor.id && !is_before(reader, actor)) tell_pair(reader, false, actor, true);
    if (own && state.readers.empty()) return from;
    states_.push_back({actor.id, {}});
  }
  return found->second = static_cast<uint32_t>(states_.size() - 1);
}

void Races::touch(Actor& actor, const void* first, size_t bytes, bool writes) {
  if (actor.id == 0) {
    touchers_.push_back({actor.name, actor.lane, actor.clock[actor.lane], actor.gives_back});
    actor.id = static_cast<uint32_t>(touchers_.size() - 1);
  }
  if (actor_ != actor.id) {
    actor_ = actor.id;
    for (int w : {0, 1}) {
      known_[w].clear();
      last_[w].fill({});
      last_[w][0] = {0, changed(0, actor, w != 0)};
    }
  }
  uint32_t* const end = Memory::cell_of(static_cast<const char*>(first) + bytes - 1) + 1;
  for (uint32_t* cell = Memory::cell_of(first); cell != end; ++cell) {
    Change& last = last_[writes][*cell % last_[writes].size()];
    if (*cell != last.from) last = {*cell, changed(*cell, actor, writes)};
    *cell = last.to;
  }
}

void Races::touch(Actor& actor, const std::vector<Access>& accesses) {
  const std::lock_guard lock(mutex);
  for (const Access& access : accesses)
    if (access.bytes > 0 && Memory::has(access.first))
      touch(actor, access.first, access.bytes, access.writes);
}

Races& races() {
  static Races& races = *new Races;
  return races;
}

Acting::Acting(Actor& actor) : before_(std::exchange(actor_now, &actor)) {}

Acting::~Acting() {
  actor_now = before_;
}

Actor* acting() {
  return actor_now;
}

bool watches_races() {
  return races().wanted;
}

Watch::Watch() {
  if (races().wanted && actor_now != nullptr) {
    races().mutex.lock();
    watched = actor_now;
    on = true;
  }
}

Watch::~Watch() {
  if (std::exchange(on, false)) races().mutex.unlock();
}

void Watch::touched(const void* first, size_t bytes, bool writes) {
  if (Memory::has(first)) races().touch(*watched, first, bytes, writes);
}

}  // namespace simgpu
