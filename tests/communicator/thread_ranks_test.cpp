#include "harness/communicator/thread_ranks.hpp"

#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/types.h>

#include <array>
#include <atomic>

#include "harness/support/error.hpp"
#include "tests/file_size_limit.hpp"

namespace bnlab {
namespace {

TEST(ThreadRanks, MeetInOneWorld) {
  std::array<double, 3> sums{};
  on_thread_ranks(3, at::kCPU, [&](World& world) {
    at::Tensor mine = at::full({1}, world.rank() + 1, at::kDouble);
    world.statistics().all_reduce(mine, Purpose::control);
    sums[static_cast<size_t>(world.rank())] = mine.item<double>();
  });
  EXPECT_EQ(sums, (std::array<double, 3>{6, 6, 6}));
}

TEST(ThreadRanks, TheCauseIsThrownRatherThanTheLossOfTheRankThatThrewIt) {
  try {
    on_thread_ranks(2, at::kCPU, [&](World& world) {
      if (world.rank() == 1) throw Error(Error::Kind::refused, "the cause");
      world.statistics().barrier();
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the cause");
  }
}

TEST(ThreadRanks, WhereNoRankCouldJoinAllTryAgainForTheNextBody) {
  if (torch::cuda::is_available())
    GTEST_SKIP() << "needs a machine without a GPU, where no rank finds its own";
  ThreadRanks ranks(2, at::kCUDA);
  std::atomic<int> bodies = 0;
  for (int body = 0; body < 2; ++body) EXPECT_ANY_THROW(ranks.run([&](World&) { ++bodies; }));
  EXPECT_EQ(bodies, 0);
}

TEST(ThreadRanks, AWorldThatCouldNotBeJoinedIsJoinedForTheNextBody) {
  ThreadRanks ranks(2, at::kCPU);
  std::atomic<int> bodies = 0;
  const auto body = [&](World&) { ++bodies; };
  {
    const FileSizeLimit no_memory_to_share(0);
    EXPECT_THROW(ranks.run(body), Error);
    EXPECT_THROW(ranks.run(body), Error);
  }
  EXPECT_EQ(bodies, 0);
  ranks.run(body);
  EXPECT_EQ(bodies, 2);
}

}  // namespace
}  // namespace bnlab
