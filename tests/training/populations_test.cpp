// Populations beside a training: shadow pairs are what the strategies of that name save, and nothing that an
// evaluation needs changes the training.
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class Populations : public ::testing::Test {
 protected:
  TrainingRuns runs_;
};

// The shadow pairs of one population under the names that saved pairs have.
std::map<std::string, at::Tensor> pairs_of(const TrainedRun& run, const std::string& population) {
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, tensor] : run.pairs) {
    if (name.rfind(population + "/", 0) == 0) {
      found[name.substr(population.size() + 1)] = tensor;
    }
  }
  return found;
}

// These strategies train identical weights, so one training can stand for all of them.
TEST_F(Populations, ShadowPairsAreWhatTheStrategiesOfThatNameSave) {
  const Json uneven = {3, 0, 2, 3};
  const TrainedRun carrying = runs_.run(TrainingRuns::spec({{"strategy", "per_tower"},
                                                            {"batch_per_tower", uneven},
                                                            {"populations", {"tower:2", "mean", "pooled"}}}),
                                        2);
  const std::map<std::string, Json> rivals = {{"tower:2", {{"name", "per_tower"}, {"saved_tower", 2}}},
                                              {"mean", {{"name", "averaged"}}},
                                              {"pooled", {{"name", "averaged"}, {"merge", "pooled"}}}};
  for (const auto& [population, strategy] : rivals) {
    SCOPED_TRACE(population);
    const TrainedRun rival =
        runs_.run(TrainingRuns::spec({{"strategy", strategy}, {"batch_per_tower", uneven}}), 2);
    expect_equal(parameters_of(carrying), parameters_of(rival));
    expect_near(pairs_of(carrying, population), statistics_of(rival), 1e-14);
    EXPECT_EQ(carrying.result.at("final").at(population), rival.result.at("final").at("saved"));
  }
  EXPECT_EQ(carrying.result.at("final").size(), 3u);
}

TEST_F(Populations, NoneOfThemChangesTheTraining) {
  for (const char* strategy : {"per_tower", "sync", "batch_renorm"}) {
    SCOPED_TRACE(strategy);
    const TrainedRun plain = runs_.run(TrainingRuns::spec({{"strategy", strategy}}), 2);
    const TrainedRun observed = runs_.run(
        TrainingRuns::spec({{"strategy", strategy},
                            {"populations", {"precise", "batch", "mean", "pooled", "tower:3", "saved"}},
                            {"precise_batches", 2},
                            {"eval_every", 2}}),
        2);
    EXPECT_EQ(plain.losses, observed.losses);
    expect_equal(plain.tensors, observed.tensors);
    EXPECT_EQ(plain.result.at("final").at("saved"), observed.result.at("final").at("saved"));
  }
}

TEST_F(Populations, EachEvaluationIsInTheHistory) {
  const TrainedRun run = runs_.run(
      TrainingRuns::spec({{"populations", {"saved", "tower:1"}}, {"weight_ema", 0.9}, {"eval_every", 2}}), 1);
  const Json& history = run.result.at("history");
  ASSERT_EQ(history.size(), 3u);  // after steps 2, 4 and 5
  for (const Json& entry : history) {
    for (const char* population : {"saved", "tower:1", "ema"}) {
      EXPECT_TRUE(entry.at("mean_iou").contains(population)) << entry;
    }
  }
}

TEST_F(Populations, AStrategyWithoutRunningStatisticsAnswersSavedOnly) {
  const TrainedRun run =
      runs_.run(TrainingRuns::spec({{"strategy", "group_norm"}, {"populations", {"batch", "mean"}}}), 1);
  ASSERT_EQ(run.result.at("final").size(), 1u);
  EXPECT_TRUE(run.result.at("final").contains("saved"));
  EXPECT_TRUE(run.pairs.empty());
}

}  // namespace
}  // namespace bnlab
