// Times of steps: what is counted, and how many events are kept on a device.
#include <gtest/gtest.h>

#include <thread>

#include "harness/communicator/counting_communicator.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/training/timing/step_timer.hpp"
#include "tests/made_up_devices.hpp"

namespace bnlab {
namespace {

void take_steps(StepTimer& timer, size_t steps) {
  for (size_t i = 0; i < steps; ++i) {
    timer.begin_step();
    for (const auto part : {StepTimer::data, StepTimer::forward, StepTimer::backward, StepTimer::optimizer})
      timer.end(part);
    timer.end_step();
  }
}

TEST(StepTimer, MeasuresEveryStepButTheFirstOnesHoweverManyThereAre) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    for (const size_t steps : {size_t{7}, StepTimer::kRing, 3 * StepTimer::kRing + 7}) {
      StepTimer timer(at::kCPU);
      take_steps(timer, steps);
      const Json times = timer.throughput(2, 8, world.gradients());
      EXPECT_EQ(times.at("steps_measured"), steps - 2);
      EXPECT_GT(times.at("step_time_s").at("median"), 0);
      EXPECT_GE(times.at("step_time_s").at("median"), times.at("seconds").at("forward"));
    }
  });
}

TEST(StepTimer, AStepThatWasSlowIsFoundInItsPlace) {
  on_thread_ranks(1, at::kCPU, [](World& world) {
    StepTimer timer(at::kCPU);
    take_steps(timer, 2 * StepTimer::kRing);
    timer.begin_step();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    timer.end_step();
    EXPECT_GE(timer.throughput(2 * StepTimer::kRing, 8, world.gradients()).at("step_time_s").at("median"),
              0.03);
  });
}

TEST(StepTimer, AStepTakesAsLongAsOnItsSlowestRank) {
  on_thread_ranks(3, at::kCPU, [](World& world) {
    StepTimer timer(at::kCPU);
    for (int step = 0; step < 3; ++step) {
      timer.begin_step();
      std::this_thread::sleep_for(std::chrono::milliseconds(world.rank() == 1 ? 200 : 0));
      timer.end_step();
    }
    const Json times = timer.throughput(0, 8, world.gradients());
    if (world.rank() != 0) {
      EXPECT_TRUE(times.is_null());
      return;
    }
    EXPECT_GE(times.at("step_time_s").at("p10"), 0.2);
    EXPECT_EQ(times.at("step_time_s").at("slowest_rank"), 1);
  });
}

// Of a million numbers at once, whatever the steps.
TEST(StepTimer, ManyRanksSendTheTimesOfManyStepsInPieces) {
  constexpr int kRanks = 4096;
  Ledger ledger;
  ledger.keep_list(true);
  CountingCommunicator communicator(kRanks, ledger);
  StepTimer timer(at::kCPU);
  take_steps(timer, 600);
  EXPECT_EQ(timer.throughput(0, 8, communicator).at("steps_measured"), 600);
  std::vector<int64_t> sent;
  for (const Collective& collective : ledger.list()) sent.push_back(collective.elements);
  EXPECT_EQ(sent, (std::vector<int64_t>{256, 256, 88, 1}));
}

TEST(StepTimer, KeepsAFixedNumberOfEventsHoweverLongTheRun) {
  made_up::events_made = 0;
  StepTimer timer(made_up::kDevice);
  take_steps(timer, StepTimer::kRing);
  const int of_one_ring = made_up::events_made;
  EXPECT_EQ(of_one_ring, 6 * static_cast<int>(StepTimer::kRing));
  take_steps(timer, 3 * StepTimer::kRing);
  EXPECT_EQ(made_up::events_made, of_one_ring);
}

}  // namespace
}  // namespace bnlab
