// How ranks find each other: what rank 0 shares before a run, and where its store listens. The ranks are
// threads, placed by hand as a launcher would place processes.
#include "harness/communicator/world.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "harness/communicator/host/batch_threads.hpp"
#include "harness/communicator/host/network.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

using std::chrono::milliseconds;

int free_port() {
  return LoopbackSocket().port();
}

Rendezvous place(int rank, int port, milliseconds timeout = milliseconds(20000)) {
  Rendezvous at;
  at.rank = rank;
  at.size = 2;
  at.port = port;
  at.timeout = timeout;
  return at;
}

std::future<std::string> shares(const Rendezvous& at, const std::string& text = "") {
  return std::async(std::launch::async, [=] { return share_text(at, text); });
}

// The store that torchrun serves: it outlives every program that the launcher starts.
class AgentStore : public ::testing::Test {
 protected:
  AgentStore() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    store_ = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }

  Rendezvous on_agent(int rank, milliseconds timeout = milliseconds(20000)) {
    Rendezvous at = place(rank, store_->getPort(), timeout);
    at.store_exists = true;
    return at;
  }

 private:
  c10::intrusive_ptr<c10d::TCPStore> store_;
};

TEST_F(AgentStore, BringsTheTextOfRankZero) {
  auto other = shares(on_agent(1));
  EXPECT_EQ(share_text(on_agent(0), "plan"), "plan");
  EXPECT_EQ(other.get(), "plan");
}

TEST_F(AgentStore, BringsTheTextsOfAllRanksWhateverEarlierOnesWere) {
  for (const std::string round : {"first", "second"}) {
    auto other = std::async(std::launch::async, [&] { return gather_texts(on_agent(1), round + " of 1"); });
    const std::vector<std::string> expected{round + " of 0", round + " of 1"};
    EXPECT_EQ(gather_texts(on_agent(0), round + " of 0"), expected);
    EXPECT_EQ(other.get(), expected);
  }
}

TEST_F(AgentStore, AnotherInvocationNeverReadsAnOldText) {
  auto first = shares(on_agent(1));
  share_text(on_agent(0), "first");
  first.get();
  auto second = shares(on_agent(1));
  std::this_thread::sleep_for(milliseconds(200));  // time enough to read what the first has left behind
  share_text(on_agent(0), "second");
  EXPECT_EQ(second.get(), "second");
}

TEST_F(AgentStore, ARankThatDiedWhileItWaitedIsNotTakenForItsSuccessor) {
  EXPECT_THROW(share_text(on_agent(1, milliseconds(300)), ""), Error);  // nobody answers
  auto successor = shares(on_agent(1));
  share_text(on_agent(0), "plan");
  EXPECT_EQ(successor.get(), "plan");
}

// Under one prefix a rank may ask the next question while others still wait for the answer to this one.
TEST_F(AgentStore, CallsInARowKeepTheirAnswersApartHoweverLateARankIs) {
  constexpr int kRanks = 4, kCalls = 30;
  const auto all_calls = [&](int rank) {
    Rendezvous at = on_agent(rank);
    at.size = kRanks;
    std::vector<std::string> heard;
    for (int call = 0; call < kCalls; ++call) {
      if (rank == kRanks - 1) std::this_thread::sleep_for(milliseconds(10));
      heard.push_back(share_text(at, std::to_string(call)));
    }
    return heard;
  };
  std::vector<std::future<std::vector<std::string>>> others;
  for (int rank = 1; rank < kRanks; ++rank) others.push_back(std::async(std::launch::async, all_calls, rank));
  const std::vector<std::string> said = all_calls(0);
  for (auto& other : others) EXPECT_EQ(other.get(), said);
}

TEST_F(AgentStore, ARankSaysForWhomItWaitsAndHowLongStill) {
  for (const int rank : {0, 1}) {  // the other one never comes
    testing::internal::CaptureStderr();
    EXPECT_THROW(share_text(on_agent(rank, milliseconds(5300)), "plan"), Error);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(said.starts_with("bnlab: rank " + std::to_string(rank) + " waits for rank " +
                                 std::to_string(1 - rank) + " at 127.0.0.1:"))
        << said;
    EXPECT_NE(said.find(", 1 s left."), std::string::npos) << said;
  }
}

TEST(Rendezvous, NobodyListensIsSaidWithoutAStack) {
  const int port = LoopbackSocket().port();  // free again
  testing::internal::CaptureStderr();
  try {
    share_text(place(1, port, milliseconds(5300)), "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 waited 6 s for rank 0 at 127.0.0.1:"), std::string::npos)
        << error.what();
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("(Connection refused), 1 s left"), std::string::npos) << said;
  EXPECT_EQ(said.find("frame #"), std::string::npos) << said;
}

TEST_F(AgentStore, AMissedDeadlineIsAnErrorOfCommunication) {
  for (const int rank : {0, 1}) {  // the other one never comes
    try {
      share_text(on_agent(rank, milliseconds(300)), "plan");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::communication) << error.what();
    }
  }
}

// What /proc says of the sockets that this process has open, as "socket:[4711]".
std::set<std::string> own_sockets() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;
    found.insert(std::filesystem::read_symlink(entry.path(), closed).string());
  }
  return found;
}

// "0100007F" of every TCP socket on which this process listens, on `port` if it is given, as /proc/net writes
// addresses.
std::set<std::string> listening_addresses(int port = 0) {
  const std::set<std::string> own = own_sockets();
  std::set<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    for (std::string line; std::getline(in, line);) {
      std::istringstream text(line);
      const std::vector<std::string> words(std::istream_iterator<std::string>(text), {});
      if (words.size() > 9 && words[3] == "0A" && own.contains("socket:[" + words[9] + "]")) {
        const size_t colon = words[1].find(':');
        if (port == 0 || std::stoi(words[1].substr(colon + 1), nullptr, 16) == port)
          found.insert(words[1].substr(0, colon));
      }
    }
  }
  return found;
}

// The address of this machine towards others, or "" where it has none; and as /proc/net writes it.
std::string address_towards_others() {
  try {
    const std::string address = address_towards("198.51.100.1");
    return is_loopback(address) || address.find(':') != std::string::npos ? "" : address;
  } catch (const Error&) {
    return "";
  }
}

std::string as_in_proc(const std::string& address) {
  in_addr bytes{};
  inet_pton(AF_INET, address.c_str(), &bytes);
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08X", bytes.s_addr);
  return text.data();
}

TEST(World, OnALoopbackAddressTheStoreListensOnLoopbackOnly) {
  const int port = free_port();
  auto other = std::async(std::launch::async, [&] { join_world(place(1, port), at::kCPU)->shutdown(); });
  const auto world = join_world(place(0, port), at::kCPU);
  EXPECT_EQ(listening_addresses(port), std::set<std::string>{"0100007F"});
  world->shutdown();
  other.get();
}

int threads_of_policy(int policy) {
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    found += sched_getscheduler(std::stoi(entry.path().filename())) == policy;
  return found;
}

// A thread that wakes for a socket must not take the place of the one that is about to let go of its lock.
TEST(World, SocketsAreServedByBatchThreads) {
  const auto at = [port = free_port()](int rank) {
    Rendezvous there = place(rank, port);
    there.exchange = Exchange::sockets;
    return there;
  };
  const int own = sched_getscheduler(0), before = threads_of_policy(SCHED_BATCH);
  auto other = std::async(std::launch::async, [&] { join_world(at(1), at::kCPU)->shutdown(); });
  const auto world = join_world(at(0), at::kCPU);
  if (own == SCHED_OTHER)  // of each rank one for statistics, one for gradients
    EXPECT_EQ(threads_of_policy(SCHED_BATCH) - before, 4);
  EXPECT_EQ(sched_getscheduler(0), own);
  world->shutdown();
  other.get();
}

TEST(World, APolicyOfTheCallersOwnIsLeft) {
  std::thread([] {
    const sched_param none{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    {
      const StartsBatchThreads while_this_lives;
    }
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
  }).join();
}

// The machine's own name may stand for 127.0.1.1, which other machines cannot reach.
TEST(World, SocketsListenWhereOtherMachinesReachThem) {
  const std::string address = address_towards_others();
  if (address.empty()) GTEST_SKIP() << "no network device but loopback has an IPv4 address";
  const auto at = [&, port = free_port()](int rank) {
    Rendezvous there = place(rank, port);
    there.address = address;
    there.exchange = Exchange::sockets;
    return there;
  };
  auto other = std::async(std::launch::async, [&] { join_world(at(1), at::kCPU)->shutdown(); });
  const auto world = join_world(at(0), at::kCPU);
  EXPECT_TRUE(listening_addresses().contains(as_in_proc(address)));
  world->shutdown();
  other.get();
}

TEST(World, SocketsListenOnTheInterfaceThatTheUserNames) {
  ::setenv("GLOO_SOCKET_IFNAME", "no-such-one", 1);
  Rendezvous at = place(0, free_port(), milliseconds(100));
  at.exchange = Exchange::sockets;
  try {
    join_world(at, at::kCPU);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-one"), std::string::npos) << error.what();
  }
  ::unsetenv("GLOO_SOCKET_IFNAME");
}

TEST(World, PeersAreRefusedOnTheCpu) {
  Rendezvous at = place(0, free_port(), milliseconds(100));
  at.exchange = Exchange::peers;
  try {
    join_world(at, at::kCPU);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("shared_memory"), std::string::npos) << error.what();
  }
}

TEST(World, AStrangerWhoHoldsThePortAndIsSilentEndsTheWait) {
  for (const bool store_exists : {false, true}) {
    const LoopbackSocket stranger;
    Rendezvous at = place(1, stranger.port(), milliseconds(1000));  // enough to connect on a busy machine
    at.store_exists = store_exists;
    try {
      share_text(at, "");
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::communication);
      EXPECT_NE(std::string(error.what()).find("rank 0"), std::string::npos) << error.what();
    }
  }
}

TEST(World, MessagesHoldNoCallStack) {
  try {
    share_text(place(1, free_port(), milliseconds(100)), "");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    EXPECT_EQ(std::string(error.what()).find("frame #"), std::string::npos) << error.what();
  }
}

TEST(World, AFasterRankMayMeetForTheNextWorldWhileRankZeroLeavesTheLast) {
  const int port = free_port();
  auto fast = std::async(std::launch::async, [&] {
    share_text(place(1, port), "");
    join_world(place(1, port), at::kCPU)->shutdown();
  });
  share_text(place(0, port), "plan");
  std::this_thread::sleep_for(milliseconds(300));
  join_world(place(0, port), at::kCPU)->shutdown();
  EXPECT_NO_THROW(fast.get());
}

}  // namespace
}  // namespace bnlab
