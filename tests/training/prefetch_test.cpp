// Batches made ahead: the same ones in the same order, no further ahead than allowed, and an end without a
// hang.
#include "harness/training/prefetch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/support/error.hpp"
#include "harness/training/data.hpp"
#include "tests/made_up_devices.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab::prefetch_test {
namespace {

constexpr int64_t kSteps = 20;

Batch numbered(int64_t step) {
  Batch batch;
  batch.index = static_cast<uint64_t>(step);
  return batch;
}

TEST(Prefetch, BringsTheBatchesThatTheStepsWouldHaveMade) {
  const RunSpec spec = TrainingRuns::spec({{"steps", 6}});
  on_thread_ranks(1, at::kCPU, [&](World& world) {
    Data in_the_step(spec, "", world), ahead(spec, "", world);
    Prefetch prefetch([&](int64_t step) { return ahead.training(step); }, 6, at::kCPU);
    for (int64_t step = 0; step < 6; ++step) {
      const Batch expected = in_the_step.training(step), got = prefetch.next();
      EXPECT_EQ(got.index, expected.index);
      EXPECT_TRUE(got.images.equal(expected.images)) << step;
      EXPECT_TRUE(got.labels.equal(expected.labels)) << step;
    }
  });
}

TEST(Prefetch, ManyWorkersBringTheSameBatchesInOrder) {
  for (const int workers : {0, 1, 3}) {
    const RunSpec spec = TrainingRuns::spec({{"steps", 12}, {"data_workers", workers}});
    const RunSpec without = TrainingRuns::spec({{"steps", 12}});
    on_thread_ranks(1, at::kCPU, [&](World& world) {
      Data in_the_step(without, "", world), ahead(spec, "", world);
      EXPECT_EQ(ahead.workers(), workers);
      for (int64_t step = 0; step < 12; ++step) {
        const Batch expected = in_the_step.training(step), got = ahead.training(step);
        EXPECT_EQ(got.index, expected.index);
        EXPECT_TRUE(got.images.equal(expected.images)) << step;
        EXPECT_TRUE(got.labels.equal(expected.labels)) << step;
      }
    });
  }
}

TEST(Prefetch, SeveralWorkersWorkAtOnce) {
  std::atomic<int> at_once = 0, most = 0;
  Prefetch prefetch(
      [&](int64_t step) {
        most = std::max<int>(most, ++at_once);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        --at_once;
        return numbered(step);
      },
      kSteps, at::kCPU, 3);
  for (int64_t step = 0; step < kSteps; ++step) EXPECT_EQ(prefetch.next().index, static_cast<uint64_t>(step));
  EXPECT_GT(most, 1);
}

TEST(Prefetch, IsNotFurtherAheadThanItMay) {
  std::atomic<int64_t> taken = 0, furthest = 0;
  Prefetch prefetch(
      [&](int64_t step) {
        furthest = std::max<int64_t>(furthest, step - taken);
        return numbered(step);
      },
      kSteps, at::kCPU);
  for (int64_t step = 0; step < kSteps; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(prefetch.next().index, static_cast<uint64_t>(step));
    ++taken;
  }
  EXPECT_LE(furthest, Prefetch::kAhead);
  EXPECT_GT(furthest, 0) << "nothing was made ahead";
}

TEST(Prefetch, AFailureReachesTheStepWhoseBatchItIs) {
  Prefetch prefetch(
      [](int64_t step) {
        if (step == 2) throw Error(Error::Kind::data, "no picture");
        return numbered(step);
      },
      kSteps, at::kCPU);
  EXPECT_EQ(prefetch.next().index, 0U);
  EXPECT_EQ(prefetch.next().index, 1U);
  EXPECT_THROW(prefetch.next(), Error);
  EXPECT_THROW(prefetch.next(), Error);
}

TEST(Prefetch, EndsWhileItMakesABatchAndWhileItWaits) {
  std::promise<void> begun;
  std::atomic<int64_t> made = 0;
  {
    const Prefetch prefetch(
        [&](int64_t step) {
          begun.set_value();
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          ++made;
          return numbered(step);
        },
        1, at::kCPU);
    begun.get_future().wait();
  }
  EXPECT_EQ(made, 1);
  made = 0;
  {
    const Prefetch prefetch([&](int64_t step) { return ++made, numbered(step); }, kSteps, at::kCPU);
    while (made < Prefetch::kAhead) std::this_thread::yield();
  }
  EXPECT_EQ(made, Prefetch::kAhead);
}

// On GPUs each worker has a stream of its own. A worker may end long before the training does.
TEST(Prefetch, WorkersGiveTheirStreamsBackBeforeTheirThreadsEnd) {
  made_up::streams_set_too_late = 0;
  std::atomic<c10::StreamId> own{0};
  std::promise<void> begun;
  {
    const Prefetch prefetch(
        [&](int64_t step) {
          own = made_up::current_stream();
          begun.set_value();
          return numbered(step);
        },
        1, made_up::kDevice);
    begun.get_future().wait();
  }
  EXPECT_NE(own, 0);
  EXPECT_EQ(own, made_up::last_of_high_priority) << "NCCL takes the others";
  EXPECT_EQ(made_up::streams_set_too_late, 0);
}

}  // namespace
}  // namespace bnlab::prefetch_test
