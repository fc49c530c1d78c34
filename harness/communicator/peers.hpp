// The exchange between GPUs whose memory the ranks of one host have opened to each other: one kernel, which
// copies what a rank sends into the others' memory and waits for what they send.
//
// Every rank has a region of memory that all write to. A block of the kernel is a lane with slots of its own:
// two for each sender, which take turns, and a flag for each slot. In epoch e of a lane a rank writes into
// slot e % 2 of every other, raises the flags, waits for those of the others and reads its own slots. It
// raises a flag of epoch e + 1 only once it has read epoch e, so nobody writes epoch e + 2 into a slot that
// is still read. The epochs are counted in the region: a replayed kernel counts on.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace bnlab::peers {

constexpr int kMostRanks = 16;
constexpr int kLanes = 16;
constexpr int64_t kSlotBytes = 64 << 10;
constexpr int64_t kHeaderBytes = 4096;  // flags, then the epochs of the lanes

constexpr int64_t region_bytes(int ranks) {
  return kHeaderBytes + int64_t{kLanes} * 2 * ranks * kSlotBytes;
}

// The ranks as one of them sees them.
struct Ranks {
  int rank = 0, size = 1;
  std::array<std::byte*, kMostRanks> region{};
  unsigned* missing = nullptr;  // in the host's memory: 1 + the rank that did not come within the limit
  int64_t limit_ns = 0;
};

// Bytes of a tensor.
struct Share {
  int64_t begin = 0, bytes = 0;
};

// What a rank sends to each, and where it puts what comes from each. What it sends to itself it copies.
struct Call {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::array<Share, kMostRanks> sent{}, received{};
};

// Rows that another kernel gathers before it goes on with them: each block, of kChannelsOfBlock threads,
// those columns that belong to its channels, as a lane of its own.
constexpr int64_t kChannelsOfBlock = 128;
struct Gather {
  Ranks ranks;
  const void* from = nullptr;  // [rows, head + parts * channels] of this rank
  void* to = nullptr;          // [ranks, rows, head + parts * channels]
  int64_t rows = 0, head = 0, parts = 0, channels = 0;

  constexpr int64_t columns() const { return head + parts * channels; }
  // Whether the lanes and their slots have room. The same on all ranks.
  constexpr bool fits(int64_t value_bytes) const {
    return channels <= kLanes * kChannelsOfBlock &&
           rows * (head + parts * kChannelsOfBlock) * value_bytes <= kSlotBytes;
  }
};

// On the current stream. A limit that has passed ends the kernel by a trap: every later call of CUDA in this
// process fails.
void exchange(const Ranks& ranks, const Call& call, int lanes);

// Every rank that receives gets the sum of all tensors, added up in rank order: the same bits everywhere.
// The received shares are the same.
void exchange_sum(const Ranks& ranks, const Call& call, int lanes, at::ScalarType type);

}  // namespace bnlab::peers
