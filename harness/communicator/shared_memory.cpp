#include "harness/communicator/shared_memory.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>

#include "harness/error.hpp"

namespace bnlab {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kLookForTheDeadEvery{50};

// Sleeps until the word is no longer `seen`, somebody wakes it, or the time is up. It may wake for no reason.
void sleep_on(std::atomic<uint32_t>& word, uint32_t seen, milliseconds time) {
  const timespec limit{time.count() / 1000, time.count() % 1000 * 1000000};
  syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0);
}

void wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Counters of rounds may wrap around.
bool reached(uint32_t rounds, uint32_t wanted) {
  return static_cast<int32_t>(rounds - wanted) >= 0;
}

struct flock lock_of(int rank) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

[[noreturn]] void refuse(int rank, const std::string& why) {
  throw Error(Error::Kind::environment, "rank " + std::to_string(rank) +
                                            " cannot share memory with rank 0 (" + why +
                                            "); give --exchange sockets");
}

// A new file in memory, under a name that no other has.
int new_file(std::string& name) {
  std::random_device chance;
  name = "bnlab-" + std::to_string(chance()) + "-" + std::to_string(chance());
  return memfd_create(name.c_str(), MFD_CLOEXEC);
}

// Rank 0's file, which no path but that of its descriptor leads to. -1 with errno where there is none: on another
// host the process is missing, or a stranger's.
int file_of_rank0(const std::string& process, const std::string& descriptor, const std::string& name) {
  const std::string path = "/proc/" + process + "/fd/" + descriptor;
  std::array<char, 128> target{};
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0) {
    return -1;
  }
  if (!std::string(target.data()).starts_with("/memfd:" + name + " ")) {
    errno = ENOENT;
    return -1;
  }
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

}  // namespace

// Two cache lines, because processors fetch lines in pairs. A fresh segment is all zeros.
struct alignas(128) SharedMemory::Desk {
  std::atomic<uint32_t> rounds;  // published; the other ranks sleep on it
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> locked;  // whether the rank has locked its byte
};

SharedMemory::Segment::~Segment() {
  if (start != nullptr) {
    munmap(start, size);
  }
  if (file >= 0) {
    close(file);
  }
}

SharedMemory::SharedMemory(int rank, int ranks, const ShareText& share, milliseconds timeout,
                           std::chrono::microseconds spin)
    : rank_(rank), ranks_(ranks), timeout_(timeout), spin_(spin) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
  segment_.size = static_cast<size_t>(ranks) * (sizeof(Desk) + 2 * kSheetBytes);
  const auto check = [&](bool done) {
    if (!done) {
      refuse(rank, std::strerror(errno));
    }
  };
  std::string name, process, descriptor;
  if (rank == 0) {
    segment_.file = new_file(name);
    check(segment_.file >= 0 && ftruncate(segment_.file, static_cast<off_t>(segment_.size)) == 0);
  }
  std::istringstream invitation(
      share(std::to_string(getpid()) + " " + std::to_string(segment_.file) + " " + name));
  if (rank > 0) {
    invitation >> process >> descriptor >> name;
    segment_.file = file_of_rank0(process, descriptor, name);
    check(segment_.file >= 0);
  }
  void* const mapped = mmap(nullptr, segment_.size, PROT_READ | PROT_WRITE, MAP_SHARED, segment_.file, 0);
  check(mapped != MAP_FAILED);
  segment_.start = static_cast<std::byte*>(mapped);
  struct flock mine = lock_of(rank);
  check(fcntl(segment_.file, F_OFD_SETLK, &mine) == 0);
  desk(rank).locked = 1;
  publish();  // Nobody goes before all have come: rank 0 would take the segment along.
  for (int other = 0; other < ranks; ++other) {
    of(other);
  }
}

std::byte* SharedMemory::sheet() {
  for (int rank = 0; rank < ranks_; ++rank) {
    wait_for(rank,
             rounds_);  // it has published the last round, so it has read the one before, which stood here
  }
  return sheet_of(rank_, rounds_);
}

void SharedMemory::publish() {
  Desk& mine = desk(rank_);
  mine.rounds = ++rounds_;  // sequentially consistent, as in wait_for: one of the two sees the other's change
  if (mine.sleepers != 0) {
    wake_all(mine.rounds);
  }
}

const std::byte* SharedMemory::of(int rank) const {
  wait_for(rank, rounds_);
  return sheet_of(rank, rounds_ - 1);
}

SharedMemory::Desk& SharedMemory::desk(int rank) const {
  return reinterpret_cast<Desk*>(segment_.start)[rank];
}

std::byte* SharedMemory::sheet_of(int rank, uint32_t round) const {
  return segment_.start + static_cast<size_t>(ranks_) * sizeof(Desk) +
         (static_cast<size_t>(rank) * 2 + round % 2) * kSheetBytes;
}

void SharedMemory::wait_for(int rank, uint32_t rounds) const {
  Desk& other = desk(rank);
  if (reached(other.rounds, rounds)) {
    return;
  }
  const auto start = steady_clock::now();
  while (steady_clock::now() - start < spin_) {
    for (int i = 0; i < 32; ++i) {
      pause_briefly();
    }
    if (reached(other.rounds, rounds)) {
      return;
    }
  }
  ++other.sleepers;
  std::string why;
  while (why.empty()) {
    const bool dead = gone(rank);  // asked first: a rank may publish its last round and go
    const uint32_t seen = other.rounds;
    if (reached(seen, rounds)) {
      break;
    }
    if (dead) {
      why = "rank " + std::to_string(rank) + " has gone";
    } else if (steady_clock::now() - start > timeout_) {
      why =
          "rank " + std::to_string(rank) + " did not come within " + std::to_string(timeout_.count()) + " ms";
    } else {
      sleep_on(other.rounds, seen, std::min(kLookForTheDeadEvery, timeout_));
    }
  }
  --other.sleepers;
  if (!why.empty()) {
    throw Error(Error::Kind::communication, why);
  }
}

// A rank that has not come yet has no lock either.
bool SharedMemory::gone(int rank) const {
  struct flock lock = lock_of(rank);
  return desk(rank).locked != 0 && fcntl(segment_.file, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace bnlab
