// Memory that the ranks of one host share, and the rounds in which they speak through it. No LibTorch.
//
// Every rank has a desk with two sheets of kSheetBytes. A round is the same three calls on every rank:
//
//   std::memcpy(memory.sheet(), mine, bytes);    // a rank with something to say; waits until nobody reads there
//   memory.publish();                            // every rank
//   std::memcpy(theirs, memory.of(rank), bytes)  // whose words are wanted; waits until they are there
//
// The sheets take turns. Whoever has published round k has read all it wanted of round k - 1, so the counters of
// rounds are the only sign that the ranks need.
//
// The segment has no name in any file system: nothing is left behind however the ranks end. Each rank locks its
// own byte of it, and the kernel drops the lock when the rank dies, so that the others tell a dead rank from a slow
// one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace bnlab {

// Brings the text of rank 0 to every rank. Called by every rank.
using ShareText = std::function<std::string(const std::string& text_of_rank0)>;

class SharedMemory {
 public:
  static constexpr size_t kSheetBytes = 256 << 10;

  // Called by every rank, and waits for all. `timeout` is that of every wait. A wait looks again and again for the time of `spin`
  // before it sleeps, which pays where each rank has a core of its own. Throws Error (environment) where the ranks
  // cannot share memory: on different hosts, or in containers that hide their processes from each other; as below
  // where a rank does not come.
  SharedMemory(int rank, int ranks, const ShareText& share, std::chrono::milliseconds timeout,
               std::chrono::microseconds spin);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // sheet() and of() throw Error (communication) when a rank that they wait for has gone, or does not come within
  // the timeout.
  std::byte* sheet();  // [kSheetBytes], aligned for every type
  void publish();      // what stands on the sheet, if anything, is this rank's part of the round
  const std::byte* of(int rank) const;  // the rank's part of the round; stays until this rank publishes again

 private:
  struct Desk;

  // A file in memory and its mapping; both go when it goes.
  struct Segment {
    ~Segment();
    int file = -1;
    std::byte* start = nullptr;
    size_t size = 0;
  };

  Desk& desk(int rank) const;
  std::byte* sheet_of(int rank, uint32_t round) const;
  void wait_for(int rank, uint32_t rounds) const;  // until the rank has published so many
  bool gone(int rank) const;

  int rank_;
  int ranks_;
  std::chrono::milliseconds timeout_;
  std::chrono::microseconds spin_;
  Segment segment_;
  uint32_t rounds_ = 0;  // that this rank has published
};

}  // namespace bnlab
