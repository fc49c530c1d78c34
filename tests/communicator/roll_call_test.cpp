// Ranks answer rank 0 from a thread of their own, whatever they do, and one that cannot keeps nobody waiting.
#include "harness/communicator/roll_call.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "harness/communicator/host/network.hpp"

namespace bnlab {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60000};

class RollCalls : public ::testing::Test {
 protected:
  Rendezvous place(int rank, int size) const {
    Rendezvous at;
    at.rank = rank;
    at.size = size;
    at.port = port_;
    at.prefix = "a session";
    at.timeout = milliseconds(5000);
    return at;
  }

  // Rank 0 opens the store.
  void meet() {
    Rendezvous at = place(0, 3);
    at.prefix = "another session";
    RollCall(at, [] { return "zero"; }).call(milliseconds(0));
  }

  int port_ = LoopbackSocket().port();  // free again when rank 0 takes it
};

TEST_F(RollCalls, AnswersComeFromRanksThatAreBusy) {
  std::vector<std::string> answers;
  std::thread first([&] {
    RollCall call(place(0, 3), [] { return "zero"; });
    answers = call.call(kLong);
  });
  std::vector<std::thread> others;
  for (int rank = 1; rank < 3; ++rank) {
    others.emplace_back([this, rank] {
      const RollCall call(place(rank, 3), [rank] { return "rank " + std::to_string(rank); });
      call.wait(kLong);  // which is until rank 0 has heard
    });
  }
  first.join();
  for (std::thread& other : others) other.join();
  EXPECT_EQ(answers, (std::vector<std::string>{"zero", "rank 1", "rank 2"}));
}

TEST_F(RollCalls, ARankThatDoesNotAnswerLeavesAnEmptyText) {
  meet();
  std::vector<std::string> answers;
  std::thread first([&] {
    RollCall call(place(0, 3), [] { return "zero"; });
    std::thread second([this] {
      const RollCall answering(place(1, 3), [] { return "one"; });
      answering.wait(kLong);
    });
    answers = call.call(milliseconds(3000));
    second.join();
  });
  first.join();
  EXPECT_EQ(answers, (std::vector<std::string>{"zero", "one", ""}));
}

TEST_F(RollCalls, ARankThatIsNeverAskedEndsWithoutAnAnswer) {
  meet();
  bool asked = false;
  {
    const RollCall other(place(1, 3), [&] {
      asked = true;
      return "one";
    });
    other.wait(milliseconds(1));
  }
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace bnlab
