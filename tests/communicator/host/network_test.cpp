// What a rank keeps of its network for itself.
#include "harness/communicator/host/network.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <barrier>
#include <memory>
#include <thread>
#include <vector>

namespace bnlab {
namespace {

// Whether a forked child has the descriptor.
bool child_has(int fd) {
  const pid_t child = fork();
  if (child == 0) _exit(fcntl(fd, F_GETFD) == -1 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status) == 1;
}

TEST(OwnSockets, AreClosedInAForkedChildAndTheOthersAreNot) {
  std::array<int, 2> others{}, own{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, others.data()), 0);
  {
    const OwnSockets while_they_are_made;
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, own.data()), 0);
  }
  EXPECT_FALSE(child_has(own[0]));
  EXPECT_TRUE(child_has(others[0]));
  EXPECT_NE(fcntl(own[1], F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(fcntl(others[1], F_GETFD) & FD_CLOEXEC, 0);
  const int number = own[0];
  close(own[0]);
  ASSERT_EQ(dup2(others[0], number), number);
  EXPECT_TRUE(child_has(number)) << "another socket has its number now";
  for (const int fd : {own[0], own[1], others[0], others[1]}) close(fd);
}

TEST(OwnSockets, AreOfAllThreadsThatMakeThemAtTheSameTime) {
  constexpr size_t kThreads = 4, kSockets = 200;
  std::array<std::array<int, kSockets>, kThreads> own{};
  std::vector<std::thread> threads;
  std::barrier all_made(kThreads);
  for (auto& sockets : own)
    threads.emplace_back([&] {
      const OwnSockets while_they_are_made;
      for (int& fd : sockets) fd = socket(AF_UNIX, SOCK_STREAM, 0);
      all_made.arrive_and_wait();
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& sockets : own)
    for (const int fd : sockets) {
      EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
      close(fd);
    }
}

TEST(OwnSockets, WhoListensIsSeenAtOnce) {
  auto listening = std::make_unique<LoopbackSocket>();
  const int port = listening->port();
  EXPECT_EQ(why_none_listens("127.0.0.1", port), "");
  listening.reset();
  EXPECT_EQ(why_none_listens("127.0.0.1", port), "Connection refused");
  EXPECT_NE(why_none_listens("no-such-host.invalid", port), "");
}

}  // namespace
}  // namespace bnlab
