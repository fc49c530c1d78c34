// Epochs between ranks that are threads or processes, and what the others see of one that dies.
#include "harness/communicator/host/shared_memory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <future>
#include <thread>
#include <vector>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kLong{20000};

// Runs `body` with the memory of each rank, every rank a thread.
void on_ranks(int ranks, microseconds spin, const std::function<void(SharedMemory&)>& body) {
  SharedMemory first(0, ranks, "", kLong, spin);
  std::vector<std::future<void>> others;
  for (int rank = 1; rank < ranks; ++rank) {
    others.push_back(std::async(std::launch::async, [&, rank] {
      SharedMemory memory(rank, ranks, first.handle(), kLong, spin);
      body(memory);
      memory.barrier();
    }));
  }
  body(first);
  first.barrier();  // rank 0 stays until all have come
  for (std::future<void>& other : others) other.get();
}

constexpr SharedMemory::Kind kNumber{"number", sizeof(int64_t)};

void say(SharedMemory& memory, int64_t value) {
  std::memcpy(memory.slot(kNumber), &value, sizeof value);
  memory.publish();
}

int64_t heard(const SharedMemory& memory, int rank) {
  int64_t value = 0;
  std::memcpy(&value, memory.slot_of(rank, kNumber), sizeof value);
  return value;
}

class Epochs : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(SpinMicroseconds, Epochs, ::testing::Values(0, 100));

TEST_P(Epochs, EveryRankHearsEveryOtherInEveryEpoch) {
  on_ranks(3, microseconds(GetParam()), [](SharedMemory& memory) {
    for (int64_t epoch = 0; epoch < 2000; ++epoch) {
      say(memory, 10 * epoch + memory.rank());
      for (int rank = 0; rank < memory.ranks(); ++rank) ASSERT_EQ(heard(memory, rank), 10 * epoch + rank);
    }
  });
}

// The one that speaks may be a epoch ahead, and must not write over what the other has yet to read.
TEST_P(Epochs, ASlowListenerHearsAllThatWasSaid) {
  on_ranks(2, microseconds(GetParam()), [](SharedMemory& memory) {
    for (int64_t epoch = 0; epoch < 20; ++epoch) {
      if (memory.rank() == 0) {
        say(memory, epoch);
      } else {
        memory.publish();
        std::this_thread::sleep_for(milliseconds(1));
        ASSERT_EQ(heard(memory, 0), epoch);
      }
    }
  });
}

// A rank in a process of its own that speaks once and then waits to be killed. It has forked a child, as a
// program that starts data workers does, which lives on.
class KilledRank {
 public:
  explicit KilledRank(const std::string& handle) : process_(fork()) {
    if (process_ == 0) {
      try {
        SharedMemory memory(1, 2, handle, kLong, microseconds(0));
        say(memory, 7);
        if (fork() == 0) alarm(10);
        pause();
      } catch (...) {
      }
      _exit(1);
    }
  }
  ~KilledRank() { kill(); }

  void kill() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
      process_ = 0;
    }
  }

 private:
  pid_t process_;
};

std::string communication_error(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::communication);
    return error.what();
  }
  return "no error";
}

TEST(SharedMemory, ARankThatIsKilledIsMissedLongBeforeTheTimeout) {
  SharedMemory memory(0, 2, "", kLong, microseconds(0));
  KilledRank other(memory.handle());
  say(memory, 1);
  EXPECT_EQ(heard(memory, 1), 7);
  const auto start = steady_clock::now();
  auto killer = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(milliseconds(100));
    other.kill();
  });
  say(memory, 2);
  EXPECT_EQ(communication_error([&] { heard(memory, 1); }), "rank 1 has gone");
  EXPECT_LT(steady_clock::now() - start, seconds(10));
  killer.get();
}

TEST(SharedMemory, ARankThatDoesNotComeIsNamedAtTheTimeout) {
  SharedMemory memory(0, 2, "", milliseconds(100), microseconds(0));
  say(memory, 1);
  EXPECT_EQ(communication_error([&] { heard(memory, 1); }), "rank 1 did not come within 100 ms");
}

TEST(SharedMemory, RanksThatDisagreeAboutAnEpochAreTold) {
  on_ranks(2, microseconds(0), [](SharedMemory& memory) {
    const SharedMemory::Kind kind{memory.rank() == 0 ? "all_gather" : "all_reduce", 8};
    memory.slot(kind);
    memory.publish();
    EXPECT_EQ(communication_error([&] { memory.slot_of(1 - memory.rank(), kind); }),
              memory.rank() == 0
                  ? "rank 1 has come with all_reduce of 8 bytes, this rank with all_gather of 8 bytes"
                  : "rank 0 has come with all_gather of 8 bytes, this rank with all_reduce of 8 bytes");
  });
}

TEST(SharedMemory, ARankWithoutDataIsNotTakenForOneWithOldData) {
  on_ranks(2, microseconds(0), [](SharedMemory& memory) {
    for (int64_t epoch = 0; epoch < 2; ++epoch) {
      say(memory, epoch);
      EXPECT_EQ(heard(memory, 1 - memory.rank()), epoch);
    }
    memory.publish();
    EXPECT_EQ(communication_error([&] { heard(memory, 1 - memory.rank()); }),
              "rank " + std::to_string(1 - memory.rank()) +
                  " has come with no data, this rank with number of 8 bytes");
  });
}

TEST(SharedMemory, ARankOfAnotherHostIsRefused) {
  for (const char* handle : {"999999999 3 bnlab-1-2", "1 0 bnlab-1-2", "none"}) {
    try {
      SharedMemory(1, 2, handle, kLong, microseconds(0));
      FAIL() << handle;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::environment);
      EXPECT_NE(std::string(error.what()).find("give --exchange sockets"), std::string::npos) << error.what();
    }
  }
}

TEST(SharedMemory, NoDescriptorStaysOpen) {
  const auto open_files = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const auto before = open_files();
  on_ranks(2, microseconds(0), [](SharedMemory& memory) { say(memory, 0); });
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace bnlab
