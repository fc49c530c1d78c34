// Memory that the ranks of one host share, and the rounds in which they exchange data through it. No LibTorch.
//
// Every rank has two sheets of kSheetBytes, which take turns, and a counter of the rounds that it has published. A
// round of a rank is
//
//   std::memcpy(memory.sheet(kind), mine, bytes);      // if it has data for the others; waits until nobody reads there
//   memory.publish();                                  // every rank, in every round
//   std::memcpy(theirs, memory.of(rank, kind), bytes)  // for each rank whose data it wants; waits for them
//
// A rank reads what it wants of round k before it publishes round k + 1. So when sheet() has seen that all ranks have
// published round k, nobody reads round k - 1 any more, and round k + 1 may take its place.
//
// The segment has no name in any file system: nothing is left behind however the ranks end. Each rank locks its
// own byte of it, and the kernel drops the lock when the process ends (a child that was forked without exec would keep
// it), so that the others tell a dead rank from a slow one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bnlab {

class SharedMemory {
 public:
  static constexpr size_t kSheetBytes = 256 << 10;

  // What a rank believes a round to be. Ranks that differ would read each other's data wrongly.
  struct Kind {
    const char* op;  // up to 23 characters
    uint64_t bytes;
  };

  // Rank 0 makes the segment; the others open it by rank 0's invitation, which stands while rank 0 lives. `timeout` is
  // that of every wait. A wait looks again and again for the time of `spin` before it sleeps, which pays where each
  // rank has a core of its own. Throws Error (environment) where the ranks cannot share memory: on different hosts, or
  // in containers that hide their processes from each other.
  SharedMemory(int rank, int ranks, const std::string& invitation, std::chrono::milliseconds timeout,
               std::chrono::microseconds spin);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::string invitation() const;  // of rank 0, for the others

  // All but publish() throw Error (communication) when a rank that they wait for has gone, does not come within the
  // timeout, or takes part in a round of another kind.
  std::byte* sheet(const Kind& kind);  // [kSheetBytes], aligned for every type
  void publish();
  const std::byte* of(int rank, const Kind& kind) const;  // stays until this rank publishes again
  void meet();                                            // a round without data

 private:
  struct Slot;
  struct Sheet;

  // A file in memory and its mapping; both go when it goes.
  struct Segment {
    ~Segment();
    int file = -1;
    std::byte* start = nullptr;
    size_t size = 0;
  };

  Slot& slot(int rank) const;
  Sheet& sheet_of(int rank, uint32_t round) const;
  void wait_for(int rank, uint32_t rounds) const;  // until the rank has published so many
  bool gone(int rank) const;

  int rank_;
  int ranks_;
  std::chrono::milliseconds timeout_;
  std::chrono::microseconds spin_;
  std::string name_;
  Segment segment_;
  uint32_t rounds_ = 0;  // that this rank has published
};

}  // namespace bnlab
