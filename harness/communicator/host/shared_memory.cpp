#include "harness/communicator/host/shared_memory.hpp"

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

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDeathCheckInterval{50};
constexpr pid_t kGone = -1;

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

// Counters of epochs may wrap around.
bool reached(uint32_t epoch, uint32_t wanted) {
  return static_cast<int32_t>(epoch - wanted) >= 0;
}

struct flock lock_of(int rank) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

[[noreturn]] void refuse(int rank, const std::string& why) {
  throw Error(Error::Kind::environment,
              "rank " + std::to_string(rank) +
                  (rank == 0 ? " cannot make memory to share (" : " cannot share memory with rank 0 (") +
                  why + "); give --exchange sockets");
}

std::string new_name() {
  std::random_device chance;
  return "bnlab-" + std::to_string(chance()) + "-" + std::to_string(chance());
}

// A file in memory, with all its pages. -1 with errno where there is none.
int new_file(const std::string& name, size_t size) {
  const int file = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file >= 0) {
    const int problem = posix_fallocate(file, 0, static_cast<off_t>(size));
    if (problem != 0) {
      close(file);
      errno = problem;
      return -1;
    }
  }
  return file;
}

// Rank 0's file, which only the path of its descriptor leads to. -1 with errno where there is none: on
// another host the process does not exist or belongs to somebody else.
int file_of_handle(const std::string& handle, std::string& name) {
  std::istringstream words(handle);
  int process = 0, descriptor = 0;
  words >> process >> descriptor >> name;
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
  std::array<char, 128> target{};
  if (readlink(path.c_str(), target.data(), target.size() - 1) < 0) return -1;
  if (!std::string(target.data()).starts_with("/memfd:" + name + " ")) {
    errno = ENOENT;
    return -1;
  }
  return open(path.c_str(), O_RDWR | O_CLOEXEC);
}

std::string text_of(const char* op, uint64_t bytes) {
  return std::string(op) + " of " + std::to_string(bytes) + " bytes";
}

}  // namespace

// Two cache lines, because processors fetch lines in pairs. A fresh segment is all zeros.
struct alignas(128) SharedMemory::RankState {
  std::atomic<uint32_t> epoch;  // how many the rank has published; the other ranks sleep on it
  std::atomic<uint32_t> sleepers;
  std::atomic<pid_t> process;  // once the rank has locked its byte; kGone after that
};

struct alignas(128) SharedMemory::Slot {
  std::array<char, 24> op;
  uint64_t bytes;
  uint32_t epoch;  // the rank's count once it has published this slot
  alignas(128) std::array<std::byte, kSlotBytes> data;
};

SharedMemory::Segment::~Segment() {
  if (start != nullptr) munmap(start, size);
  if (file >= 0) close(file);
}

SharedMemory::SharedMemory(int rank, int ranks, const std::string& handle, milliseconds timeout,
                           std::chrono::microseconds spin)
    : rank_(rank), ranks_(ranks), timeout_(timeout), spin_(spin) {
  static_assert(sizeof(std::atomic<uint32_t>) == 4 && std::atomic<uint32_t>::is_always_lock_free);
  const auto check = [&](bool done) {
    if (!done) refuse(rank, std::strerror(errno));
  };
  segment_.size = static_cast<size_t>(ranks) * (sizeof(RankState) + 2 * sizeof(Slot));
  name_ = rank == 0 ? new_name() : "";
  segment_.file = rank == 0 ? new_file(name_, segment_.size) : file_of_handle(handle, name_);
  check(segment_.file >= 0);
  void* const mapped = mmap(nullptr, segment_.size, PROT_READ | PROT_WRITE, MAP_SHARED, segment_.file, 0);
  check(mapped != MAP_FAILED);
  segment_.start = static_cast<std::byte*>(mapped);
  struct flock mine = lock_of(rank);
  check(fcntl(segment_.file, F_SETLK, &mine) == 0);
  state_of(rank).process = getpid();
}

SharedMemory::~SharedMemory() {
  pid_t own = getpid();  // in a forked child it is not
  state_of(rank_).process.compare_exchange_strong(own, kGone);
}

std::string SharedMemory::handle() const {
  return std::to_string(getpid()) + " " + std::to_string(segment_.file) + " " + name_;
}

std::byte* SharedMemory::slot(const Kind& kind) {
  for (int rank = 0; rank < ranks_; ++rank) wait_for(rank, epoch_);
  Slot& mine = slot_at(rank_, epoch_);
  std::strncpy(mine.op.data(), kind.op, mine.op.size() - 1);
  mine.bytes = kind.bytes;
  mine.epoch = epoch_ + 1;
  return mine.data.data();
}

void SharedMemory::publish() {
  RankState& mine = state_of(rank_);
  mine.epoch = ++epoch_;  // sequentially consistent, as in wait_for: one of the two sees the other's change
  if (mine.sleepers != 0) wake_all(mine.epoch);
}

const std::byte* SharedMemory::slot_of(int rank, const Kind& kind) const {
  wait_for(rank, epoch_);
  const Slot& theirs = slot_at(rank, epoch_ - 1);
  if (theirs.epoch != epoch_ || theirs.bytes != kind.bytes || std::strcmp(theirs.op.data(), kind.op) != 0) {
    const std::string there =
        theirs.epoch == epoch_ ? text_of(theirs.op.data(), theirs.bytes) : std::string("no data");
    throw Error(Error::Kind::communication, "rank " + std::to_string(rank) + " has come with " + there +
                                                ", this rank with " + text_of(kind.op, kind.bytes));
  }
  return theirs.data.data();
}

void SharedMemory::barrier() {
  publish();
  for (int rank = 0; rank < ranks_; ++rank) wait_for(rank, epoch_);
}

SharedMemory::RankState& SharedMemory::state_of(int rank) const {
  return reinterpret_cast<RankState*>(segment_.start)[rank];
}

SharedMemory::Slot& SharedMemory::slot_at(int rank, uint32_t epoch) const {
  auto* const slots =
      reinterpret_cast<Slot*>(segment_.start + static_cast<size_t>(ranks_) * sizeof(RankState));
  return slots[static_cast<size_t>(rank) * 2 + epoch % 2];
}

void SharedMemory::wait_for(int rank, uint32_t epoch) const {
  RankState& other = state_of(rank);
  if (reached(other.epoch, epoch)) return;
  const auto start = steady_clock::now();
  while (steady_clock::now() - start < spin_) {
    for (int i = 0; i < 32; ++i) pause_briefly();
    if (reached(other.epoch, epoch)) return;
  }
  ++other.sleepers;
  std::string why;
  while (why.empty()) {
    const bool dead = has_gone(rank);  // asked first: a rank may publish its last epoch and go
    const uint32_t seen = other.epoch;
    if (reached(seen, epoch)) break;
    if (dead) {
      why = "rank " + std::to_string(rank) + " has gone";
    } else if (steady_clock::now() - start > timeout_) {
      why =
          "rank " + std::to_string(rank) + " did not come within " + std::to_string(timeout_.count()) + " ms";
    } else {
      sleep_on(other.epoch, seen, std::min(kDeathCheckInterval, timeout_));
    }
  }
  --other.sleepers;
  if (!why.empty()) throw Error(Error::Kind::communication, why);
}

// A rank that has not come yet has no lock either, and of a rank in this process it cannot be seen.
bool SharedMemory::has_gone(int rank) const {
  const pid_t process = state_of(rank).process;
  if (process == kGone || process == 0 || process == getpid()) return process == kGone;
  struct flock lock = lock_of(rank);
  return fcntl(segment_.file, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK;
}

}  // namespace bnlab
