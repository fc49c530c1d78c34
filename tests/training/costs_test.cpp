// What a run exchanges per step is the same whichever steps count, and its peak memory is that of training.
#include "harness/training/costs.hpp"

#include <chrono>
#include <thread>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/training/peak_memory.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

TEST(Costs, TrafficPerStepIsThatOfAStepHoweverShortTheRun) {
  TrainingRuns runs;
  const Json expected =
      runs.run(TrainingRuns::spec({{"warmup_steps", 1}}), 2).result.at("communication").at("statistics");
  EXPECT_GT(expected.at("collectives_per_step"), 0);
  for (const int64_t warmup : {0, 4, 5, 6}) {  // of 5 steps
    const TrainedRun run = runs.run(TrainingRuns::spec({{"warmup_steps", warmup}}), 2);
    EXPECT_EQ(run.result.at("communication").at("statistics"), expected) << warmup;
  }
}

TEST(Costs, TheShareOfExchangesIsThatOfTheStepsTimeAndWhatLiesBetweenThemIsNone) {
  const auto some_time = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    Costs costs(world);
    at::Tensor t = at::ones({4});
    costs.begin(0);
    some_time(10 * world.rank());  // the first waits for the second
    world.statistics().all_reduce(t, Purpose::statistics);
    const double before = *costs.exchange_share();
    EXPECT_TRUE(before > 0 && before <= 1) << before;
    some_time(10 * world.rank());
    world.statistics().all_reduce(t, Purpose::gradients);
    EXPECT_LT(*costs.exchange_share(), before) << "a collective of another purpose counts as other time";
    world.statistics().all_reduce(t, Purpose::shuffle);
    costs.pause();
    const double paused = *costs.exchange_share();
    some_time(300);
    costs.resume();
    const double resumed = *costs.exchange_share();
    EXPECT_TRUE(resumed > 0.1 * paused && resumed <= paused) << resumed << " of " << paused;
  });
  on_thread_ranks(1, at::kCPU, [](World& world) { EXPECT_FALSE(Costs(world).exchange_share()); });
}

TEST(Costs, ThePeakIsThatOfTrainingAndNotOfAnEvaluationInBetween) {
  account_cpu_memory();
  on_thread_ranks(1, at::kCPU, [](World& world) {
    const auto use = [](int64_t mebibytes) { at::empty({mebibytes << 20}, at::kByte); };
    const auto peak = [](Costs& costs) { return costs.memory().at("peak_memory_bytes")[0].get<int64_t>(); };
    Costs costs(world);
    use(200);
    costs.begin(0);
    const int64_t before = peak(costs);
    use(20);
    costs.pause();
    use(200);
    costs.resume();
    EXPECT_GE(peak(costs), before + (20 << 20));
    EXPECT_LT(peak(costs), before + (100 << 20));
    use(30);
    EXPECT_GE(peak(costs), before + (30 << 20));
  });
}

TEST(Costs, WithoutMomentumARunHoldsNoBufferOfItsParameters) {
  TrainingRuns runs;
  int64_t parameters = 0;
  const auto peak =
      [&](double momentum) {  // the run's weights, which the test reads, are gone before the next
        const TrainedRun run = runs.run(
            TrainingRuns::spec({{"model", {{"name", "unet"}, {"base", 64}, {"levels", 2}}},
                                {"steps", 2},
                                {"optimizer", {{"name", "sgd"}, {"lr", 0.1}, {"momentum", momentum}}}}),
            1);
        parameters = run.result.at("parameters");
        return run.result.at("memory").at("peak_memory_bytes")[0].get<int64_t>();
      };
  const int64_t with = peak(0.9), without = peak(0);
  EXPECT_LT(without, with - parameters * 8 / 2);  // float64
}

}  // namespace
}  // namespace bnlab
