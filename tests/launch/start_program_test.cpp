// Programs of the user's as ranks: what they are told, and what becomes of them.
#include "harness/launch/start_program.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "harness/support/error.hpp"
#include "tests/temporary_folder.hpp"

namespace bnlab::start_program_test {
namespace {

class StartProgram : public ::testing::Test {
 protected:
  // Each rank runs `script`, with its folder in $1.
  int start(int ranks, const std::string& script, int threads = 0) {
    return start_program({ranks, threads, {"sh", "-c", script, "sh", folder_.path().string()}});
  }
  std::string written(const std::string& file) {
    std::ifstream in(folder_.path() / file);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // Within 10 s; a process that nobody has waited for yet (a zombie) has ended too.
  static bool ended(int process) {
    const std::string state = "/proc/" + std::to_string(process) + "/stat";
    for (int look = 0; look < 1000; ++look) {
      std::ifstream in(state);
      std::string number, name, letter;
      if (!(in >> number >> name >> letter) || letter == "Z") return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  TemporaryFolder folder_;
};

TEST_F(StartProgram, RanksAreToldWhereTheyAre) {
  EXPECT_EQ(start(3,
                  "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $MASTER_ADDR > $1/$RANK; echo "
                  "$MASTER_PORT > $1/port$RANK"),
            0);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string number = std::to_string(rank);
    EXPECT_EQ(written(number), number + "/3 " + number + "/3 127.0.0.1\n");
    EXPECT_EQ(written("port" + number), written("port0"));
  }
  EXPECT_GT(std::stoi(written("port0")), 0);
}

TEST_F(StartProgram, ThreadsAreAsAsked) {
  EXPECT_EQ(start(2, "echo $OMP_NUM_THREADS > $1/$RANK", 3), 0);
  EXPECT_EQ(written("1"), "3\n");
}

TEST_F(StartProgram, TheFirstRankThatFailsIsNamedAndTheOthersStopped) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(start(3, "test $RANK != 1 || exit 7; sleep 600 & echo $! > $1/worker$RANK; wait"), 7);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "bnlab launch: rank 1 of 3 ended with status 7\n");
  for (const std::string worker : {"worker0", "worker2"})
    EXPECT_TRUE(ended(std::stoi(written(worker)))) << worker;
}

TEST_F(StartProgram, ARankThatIgnoresBeingStoppedIsKilled) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(start(2, "trap '' TERM; test $RANK = 0 || kill -SEGV $$; while :; do sleep 1; done"),
            128 + SIGSEGV);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "bnlab launch: rank 1 of 2 was ended by SIGSEGV\n");
}

TEST_F(StartProgram, AnInterruptStopsAllRanks) {
  std::thread interrupts([this] {
    while (written("1").empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    raise(SIGINT);
  });
  EXPECT_EQ(start(2, "echo started > $1/$RANK; exec sleep 600"), 130);
  interrupts.join();
}

TEST_F(StartProgram, AProgramThatIsNotThereIsRefused) {
  try {
    start_program({2, 0, {"no-such-program"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "launch: there is no program no-such-program");
  }
  EXPECT_THROW(start_program({2, 0, {folder_.path().string()}}), Error);
}

}  // namespace
}  // namespace bnlab::start_program_test
