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
  for (const auto& [name, tensor] : run.pairs)
    if (name.rfind(population + "/", 0) == 0) found[name.substr(population.size() + 1)] = tensor;
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

// What normalises a micro-batch is merged from those before it, and so is what pairs beside the saved one
// take.
TEST_F(Populations, ShadowPairsTakeTheMomentsThatTheSavedOneTakes) {
  for (const char* per : {"micro_batch", "step"}) {
    const TrainedRun run = runs_.run(TrainingRuns::spec({{"strategy", "cmbn"},
                                                         {"batch_per_tower", 4},
                                                         {"accumulate", 4},
                                                         {"statistics_per", per},
                                                         {"populations", {"saved", "tower:0"}}}),
                                     2);
    expect_near(pairs_of(run, "tower:0"), statistics_of(run), 1e-14);
  }
}

// Tower K's pair evaluates its own samples: where one tower has them all, that is population tower:K.
TEST_F(Populations, OwnTowerEvaluatesEachShardByThePairOfItsTower) {
  const Json sorted = {
      {"strategy", "per_tower"},
      {"shards", "sorted:brightness"},
      {"task", {{"name", "shapes"}, {"size", {16, 16}}, {"train", 32}, {"test", 11}, {"nuisance", 1}}},
      {"populations", {"saved", "own_tower", "tower:0", "tower:1", "tower:2", "tower:3"}}};
  const TrainedRun one = runs_.run(TrainingRuns::spec(sorted), 1),
                   two = runs_.run(TrainingRuns::spec(sorted), 2);
  const Json& metrics = one.result.at("final");
  for (const char* other : {"saved", "tower:1", "tower:2", "tower:3"})
    EXPECT_NE(metrics.at("own_tower"), metrics.at(other)) << other;
  EXPECT_EQ(metrics, two.result.at("final"));
  Json alone = sorted;
  alone["towers"] = 1;
  alone["batch_per_tower"] = 8;
  alone["populations"] = {"saved", "own_tower"};
  const TrainedRun whole = runs_.run(TrainingRuns::spec(alone), 1);
  EXPECT_EQ(whole.result.at("final").at("own_tower"), whole.result.at("final").at("saved"));
  EXPECT_FALSE(pairs_of(one, "tower:3").empty());
}

// Averaged weights under three pairs: their own average, a recomputed one, and the live network's.
TEST_F(Populations, AveragedWeightsUnderThreePairs) {
  const Json keys = {{"populations", {"saved", "precise", "ema_precise", "ema_live"}},
                     {"precise_batches", 2},
                     {"weight_ema", 0.9}};
  const TrainedRun run = runs_.run(TrainingRuns::spec(keys), 2);
  const Json& metrics = run.result.at("final");
  ASSERT_EQ(metrics.size(), 5u);
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{{"ema", "ema_live"},
                                                                             {"ema", "ema_precise"},
                                                                             {"ema_live", "saved"},
                                                                             {"ema_precise", "precise"},
                                                                             {"ema_precise", "ema_live"}}) {
    EXPECT_NE(metrics.at(a), metrics.at(b)) << a << ", " << b;
  }
  const TrainedRun plain = runs_.run(TrainingRuns::spec({{"weight_ema", 0.9}}), 2);
  EXPECT_EQ(plain.result.at("final").at("ema"), metrics.at("ema"));
  EXPECT_EQ(plain.result.at("final").at("saved"), metrics.at("saved"));
}

TEST_F(Populations, AveragedWeightsWithoutStatisticsAreTheSameUnderEach) {
  const Json metrics = runs_
                           .run(TrainingRuns::spec({{"strategy", {{"name", "group_norm"}, {"groups", 2}}},
                                                    {"populations", {"saved", "ema_precise", "ema_live"}},
                                                    {"weight_ema", 0.9}}),
                                1)
                           .result.at("final");
  EXPECT_EQ(metrics.at("ema_precise"), metrics.at("ema"));
  EXPECT_EQ(metrics.at("ema_live"), metrics.at("ema"));
  EXPECT_NE(metrics.at("ema"), metrics.at("saved"));
}

// A share of almost nothing is the saved pair; of all, what normalises each sample by itself.
TEST_F(Populations, MixGoesFromTheSavedPairToTheSampleItself) {
  const Json keys = {{"strategy", "per_tower"},
                     {"batch_per_tower", 1},
                     {"precision", "float64"},
                     {"populations", {"saved", "batch", "mix:1e-12", "mix:0.3", "mix:1"}}};
  const Json metrics = runs_.run(TrainingRuns::spec(keys), 2).result.at("final");
  EXPECT_EQ(metrics.at("mix:1e-12"), metrics.at("saved"));
  EXPECT_EQ(metrics.at("mix:1"), metrics.at("batch"));  // towers of one sample
  EXPECT_NE(metrics.at("mix:0.3"), metrics.at("saved"));
  EXPECT_NE(metrics.at("mix:0.3"), metrics.at("batch"));
}

TEST_F(Populations, NoneOfThemChangesTheTraining) {
  for (const char* strategy : {"per_tower", "sync", "batch_renorm"}) {
    SCOPED_TRACE(strategy);
    const TrainedRun plain = runs_.run(TrainingRuns::spec({{"strategy", strategy}}), 2);
    const TrainedRun observed =
        runs_.run(TrainingRuns::spec(
                      {{"strategy", strategy},
                       {"populations", {"precise", "batch", "mean", "pooled", "tower:3", "mix:0.5", "saved"}},
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
  for (const Json& entry : history)
    for (const char* population : {"saved", "tower:1", "ema"})
      EXPECT_TRUE(entry.at("mean_iou").contains(population)) << entry;
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
