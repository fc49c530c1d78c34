// What a run exchanges per step is the same whichever steps count.
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

}  // namespace
}  // namespace bnlab
