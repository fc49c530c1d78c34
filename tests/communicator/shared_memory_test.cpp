// Rounds between ranks that are threads or processes, and what the others see of one that dies.
#include "harness/communicator/shared_memory.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <future>
#include <thread>
#include <vector>

#include "harness/error.hpp"

namespace bnlab {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr milliseconds kLong{20000};

// Runs `body` with the memory of each rank, every rank a thread.
void on_ranks(int ranks, microseconds spin, const std::function<void(SharedMemory&)>& body) {
  std::promise<std::string> invitation;
  const std::shared_future<std::string> invited = invitation.get_future().share();
  std::vector<std::future<void>> others;
  const auto live = [&, invited](int rank) {
    const auto share = [&](const std::string& text) {
      if (rank == 0) {
        invitation.set_value(text);
      }
      return invited.get();
    };
    SharedMemory memory(rank, ranks, share, kLong, spin);
    body(memory);
  };
  for (int rank = 0; rank < ranks; ++rank) {
    others.push_back(std::async(std::launch::async, live, rank));
  }
  for (std::future<void>& other : others) {
    other.get();
  }
}

void say(SharedMemory& memory, int64_t value) {
  std::memcpy(memory.sheet(), &value, sizeof value);
  memory.publish();
}

int64_t heard(const SharedMemory& memory, int rank) {
  int64_t value = 0;
  std::memcpy(&value, memory.of(rank), sizeof value);
  return value;
}

class Rounds : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(SpinMicroseconds, Rounds, ::testing::Values(0, 100));

TEST_P(Rounds, EveryRankHearsEveryOtherInEveryRound) {
  on_ranks(3, microseconds(GetParam()), [](SharedMemory& memory) {
    for (int64_t round = 0; round < 2000; ++round) {
      say(memory, 10 * round + memory.rank());
      for (int rank = 0; rank < memory.ranks(); ++rank) {
        ASSERT_EQ(heard(memory, rank), 10 * round + rank);
      }
    }
  });
}

// The one that speaks may be a round ahead, and must not write over what the other has yet to read.
TEST_P(Rounds, ASlowListenerHearsAllThatWasSaid) {
  on_ranks(2, microseconds(GetParam()), [](SharedMemory& memory) {
    for (int64_t round = 0; round < 20; ++round) {
      if (memory.rank() == 0) {
        say(memory, round);
      } else {
        memory.publish();
        std::this_thread::sleep_for(milliseconds(1));
        ASSERT_EQ(heard(memory, 0), round);
      }
    }
  });
}

// An anonymous mapping in which the child of a fork finds what its parent writes.
struct Note {
  char text[128];
  volatile bool written;
};

// A rank in a process of its own that speaks once and then waits to be killed.
class KilledRank {
 public:
  KilledRank() {
    note_ = static_cast<Note*>(
        mmap(nullptr, sizeof(Note), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    process_ = fork();
    if (process_ == 0) {
      SharedMemory memory(
          1, 2,
          [this](const std::string&) {
            while (!note_->written) {
              usleep(1000);
            }
            return std::string(note_->text);
          },
          kLong, microseconds(0));
      say(memory, 7);
      pause();
    }
  }
  ~KilledRank() {
    kill();
    munmap(note_, sizeof(Note));
  }

  std::string invite(const std::string& text) {
    std::strncpy(note_->text, text.c_str(), sizeof note_->text - 1);
    note_->written = true;
    return text;
  }

  void kill() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
      process_ = 0;
    }
  }

 private:
  Note* note_;
  pid_t process_;
};

TEST(SharedMemory, ARankThatIsKilledIsMissedLongBeforeTheTimeout) {
  KilledRank other;
  SharedMemory memory(
      0, 2, [&](const std::string& text) { return other.invite(text); }, kLong, microseconds(0));
  say(memory, 1);
  EXPECT_EQ(heard(memory, 1), 7);
  const auto start = steady_clock::now();
  auto killer = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(milliseconds(100));
    other.kill();
  });
  try {
    say(memory, 2);
    heard(memory, 1);
    FAIL() << "rank 1 never spoke a second time";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::communication);
    EXPECT_STREQ(error.what(), "rank 1 has gone");
  }
  EXPECT_LT(steady_clock::now() - start, seconds(10));
  killer.get();
}

TEST(SharedMemory, ARankThatDoesNotComeIsNamedAtTheTimeout) {
  try {
    SharedMemory(
        0, 2, [](const std::string& text) { return text; }, milliseconds(100), microseconds(0));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::communication);
    EXPECT_STREQ(error.what(), "rank 1 did not come within 100 ms");
  }
}

TEST(SharedMemory, ARankOfAnotherHostIsRefused) {
  for (const char* invitation : {"999999999 3 bnlab-1-2", "1 0 bnlab-1-2", ""}) {
    try {
      SharedMemory(
          1, 2, [&](const std::string&) { return invitation; }, kLong, microseconds(0));
      FAIL() << invitation;
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
