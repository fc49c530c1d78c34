// How ranks find each other: what rank 0 shares before a run, and where its store listens. The ranks are threads,
// placed by hand as a launcher would place processes.
#include "harness/communicator/world.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <atomic>
#include <fstream>
#include <future>
#include <sstream>
#include <thread>

#include "harness/communicator/loopback_socket.hpp"
#include "harness/error.hpp"

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

// "0100007F" of every listening TCP socket on `port`, as /proc/net writes addresses.
std::vector<std::string> listening_addresses(int port) {
  std::vector<std::string> found;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream in(table);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      std::string slot, local, remote, state;
      words >> slot >> local >> remote >> state;
      const size_t colon = local.find(':');
      if (state == "0A" && std::stoi(local.substr(colon + 1), nullptr, 16) == port) {
        found.push_back(local.substr(0, colon));
      }
    }
  }
  return found;
}

TEST(World, OnALoopbackAddressTheStoreListensOnLoopbackOnly) {
  const int port = free_port();
  auto other = std::async(std::launch::async, [&] { join_world(place(1, port), at::kCPU)->leave(); });
  const auto world = join_world(place(0, port), at::kCPU);
  EXPECT_EQ(listening_addresses(port), std::vector<std::string>{"0100007F"});
  world->leave();
  other.get();
}

TEST(World, AFasterRankMayMeetForTheNextWorldWhileRankZeroLeavesTheLast) {
  const int port = free_port();
  auto fast = std::async(std::launch::async, [&] {
    share_text(place(1, port), "");
    join_world(place(1, port), at::kCPU)->leave();
  });
  share_text(place(0, port), "plan");
  std::this_thread::sleep_for(milliseconds(300));
  join_world(place(0, port), at::kCPU)->leave();
  EXPECT_NO_THROW(fast.get());
}

}  // namespace
}  // namespace bnlab
