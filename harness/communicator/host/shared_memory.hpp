// Memory that the ranks of one host share, and the epochs in which they exchange data through it. It needs no
// LibTorch.
//
// Every rank has two slots of kSlotBytes, which take turns, and a counter of the epochs that it has
// published. In one epoch a rank does this:
//
//   std::memcpy(memory.slot(kind), mine, bytes);            // if it has data; waits until nobody reads there
//   memory.publish();                                       // every rank, in every epoch
//   std::memcpy(theirs, memory.slot_of(rank, kind), bytes)  // for each rank that it hears; waits for it
//
// A rank reads what it wants of epoch k before it publishes epoch k + 1. So when slot() has seen that all
// ranks have published epoch k, nobody reads epoch k - 1 any more, and epoch k + 1 may take its place.
//
// The segment has no name in any file system: nothing is left behind however the ranks end. Each rank locks
// one byte of it, and the kernel drops the lock when the process ends, so that the others tell a dead rank
// from a slow one. The lock is the process's own: a child that it has forked does not keep it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bnlab {

class SharedMemory {
 public:
  static constexpr size_t kSlotBytes = 256 << 10;

  // What a rank believes an epoch to be. Ranks that differ would read each other's data wrongly.
  struct Kind {
    const char* op;  // up to 23 characters
    uint64_t bytes;
  };

  // Rank 0 makes the segment; the others open it by rank 0's handle, which is valid while rank 0 lives.
  // `timeout` is that of every wait. A wait polls for the time of `spin` before it sleeps, which pays where
  // each rank has a core of its own. Throws Error (environment) where the ranks cannot share memory: on
  // different hosts, or in containers that hide their processes from each other.
  SharedMemory(int rank, int ranks, const std::string& handle, std::chrono::milliseconds timeout,
               std::chrono::microseconds spin);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::string handle() const;  // rank 0 has it for the others

  // All but publish() throw Error (communication) when a rank that they wait for has gone, does not come
  // within the timeout, or takes part in an epoch of another kind.
  std::byte* slot(const Kind& kind);  // this rank's: [kSlotBytes], aligned for every type
  void publish();
  const std::byte* slot_of(int rank, const Kind& kind) const;  // valid until this rank publishes again
  void barrier();                                              // an epoch without data

 private:
  struct RankState;
  struct Slot;

  // A file in memory and its mapping; both go when it goes.
  struct Segment {
    ~Segment();
    int file = -1;
    std::byte* start = nullptr;
    size_t size = 0;
  };

  RankState& state_of(int rank) const;
  Slot& slot_at(int rank, uint32_t epoch) const;
  void wait_for(int rank, uint32_t epoch) const;  // until the rank has published so many epochs
  bool has_gone(int rank) const;

  int rank_;
  int ranks_;
  std::chrono::milliseconds timeout_;
  std::chrono::microseconds spin_;
  std::string name_;
  Segment segment_;
  uint32_t epoch_ = 0;  // the number of epochs that this rank has published
};

}  // namespace bnlab
