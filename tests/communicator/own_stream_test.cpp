// Ranks work on streams of their own, and thread ranks run backward in their own thread.
#include "harness/communicator/own_stream.hpp"

#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>

#include <array>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "harness/communicator/thread_ranks.hpp"
#include "tests/made_up_devices.hpp"

namespace bnlab {
namespace {

TEST(OwnStream, EveryThreadHasAnotherOneWhichIsNotTheDefault) {
  std::array<c10::StreamId, 2> seen{};
  std::array<std::thread, 2> threads;
  std::latch both(2);  // while both have theirs
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i] = std::thread([&, i] {
      const OwnStream own(made_up::kDevice);
      seen[i] = made_up::current_stream();
      EXPECT_EQ(made_up::current_device, made_up::kDevice.index());
      both.arrive_and_wait();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_NE(seen[0], 0);
  EXPECT_NE(seen[1], 0);
  EXPECT_NE(seen[0], seen[1]);
}

TEST(OwnStream, TheOneBeforeComesBack) {
  {
    const OwnStream own(made_up::kDevice);
    EXPECT_NE(made_up::current_stream(), 0);
  }
  EXPECT_EQ(made_up::current_stream(), 0);
  EXPECT_EQ(made_up::current_device, 0);
}

TEST(OwnStream, IsNobodyElsesHoweverOftenThePoolGoesRound) {
  const OwnStream own(made_up::kDevice);
  const c10::StreamId first = made_up::current_stream();
  std::vector<std::unique_ptr<OwnStream>> others;
  for (int i = 0; i < 4; ++i) {               // more than were given back before
    made_up::streams_handed_out = first - 1;  // the next from the pool
    others.push_back(std::make_unique<OwnStream>(made_up::kDevice));
    EXPECT_NE(made_up::current_stream(), first);
  }
  while (!others.empty())  // the last first
    others.pop_back();
}

// The allocator keeps what was freed on a stream for that stream.
TEST(OwnStream, OneThatWasGivenBackIsTakenAgain) {
  const auto taken = [](OwnStream::Priority priority) {
    const OwnStream own(made_up::kDevice, priority);
    return made_up::current_stream();
  };
  const c10::StreamId ordinary = taken(OwnStream::Priority::ordinary),
                      high = taken(OwnStream::Priority::high);
  EXPECT_NE(ordinary, high);
  EXPECT_EQ(taken(OwnStream::Priority::ordinary), ordinary);
  EXPECT_EQ(taken(OwnStream::Priority::high), high);
}

TEST(OwnStream, TheCpuHasNone) {
  const c10::StreamId before = made_up::streams_handed_out;
  const OwnStream own(at::kCPU);
  EXPECT_EQ(made_up::streams_handed_out, before);
}

// Otherwise the backward passes of two ranks on one GPU would share the device's one autograd thread, where
// the first that waits for the other keeps it from ever coming.
TEST(ThreadRanks, RunBackwardInTheirOwnThread) {
  on_thread_ranks(2, at::kCPU, [](World&) {
    EXPECT_FALSE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
  });
}

}  // namespace
}  // namespace bnlab
