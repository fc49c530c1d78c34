// What ranks that exchange have in common: a mailbox in shared memory for each pair of them, and the
// messages that go through it.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace simgpu {

constexpr size_t kMailboxBytes = 128 << 10;
constexpr int kMostRanks = 64;

// A ring of bytes that one rank fills and another empties.
struct Mailbox {
  std::atomic<uint64_t> sent, taken;  // bytes, ever
  char apart[48];
  char data[kMailboxBytes];
};
struct Member {
  std::atomic<int> gone;  // has left the communicator
  int pid, device;
  char visible[64];  // CUDA_VISIBLE_DEVICES
};
struct Header {
  std::atomic<int> arrived;
  Member members[kMostRanks];
};
constexpr size_t kHeaderBytes = (sizeof(Header) + 4095) & ~size_t{4095};

}  // namespace simgpu

struct ncclComm {
  int rank = 0, size = 1, device = 0;
  char* memory = nullptr;  // shared: the header, then [size, size] mailboxes
  std::atomic<bool> aborted{false};
  std::atomic<int> error{ncclSuccess};
  std::atomic<int> under_way{0};

  simgpu::Header& header() const { return *reinterpret_cast<simgpu::Header*>(memory); }
  simgpu::Mailbox& mailbox(int from, int to) const {
    return reinterpret_cast<simgpu::Mailbox*>(memory + simgpu::kHeaderBytes)[from * size + to];
  }
};

namespace simgpu {

// Bytes on their way to or from another rank. They begin where the pair's last message ended.
struct Message {
  ncclComm* comm;
  int peer;
  bool sends;
  char* data;
  size_t left;

  // Moves what there is room for; true when all has been moved.
  bool move() {
    Mailbox& box = sends ? comm->mailbox(comm->rank, peer) : comm->mailbox(peer, comm->rank);
    while (left > 0) {
      const uint64_t sent = box.sent.load(std::memory_order_acquire),
                     taken = box.taken.load(std::memory_order_acquire);
      const size_t at = (sends ? sent : taken) % kMailboxBytes;
      const size_t room = sends ? kMailboxBytes - (sent - taken) : sent - taken;
      const size_t piece = std::min({left, room, kMailboxBytes - at});
      if (piece == 0) return false;
      std::memcpy(sends ? box.data + at : data, sends ? data : box.data + at, piece);
      data += piece;
      left -= piece;
      (sends ? box.sent : box.taken).fetch_add(piece, std::memory_order_release);
    }
    return true;
  }
};

}  // namespace simgpu
