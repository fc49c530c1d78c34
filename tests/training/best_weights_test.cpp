// Weights that are selected on a validation part of the training set: which samples these are, that the best
// evaluation's weights are those that are left and evaluated on the test, and that the test decides nothing.
#include "harness/training/endings/best_weights.hpp"

#include <fstream>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/registry.hpp"
#include "harness/store/run_folder.hpp"
#include "harness/training/data.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

Json selecting(const Json& more = Json::object()) {
  Json keys = {{"steps", 12}, {"eval_every", 1}, {"select", {{"validation_share", 0.25}}}};
  keys.update(more);
  return keys;
}

std::vector<Json> lines_of(const TrainedRun& run, const std::string& kind) {
  std::vector<Json> lines;
  std::ifstream log(run.folder / kMetricsFile);
  for (std::string text; std::getline(log, text);) {
    const Json line = Json::parse(text);
    if (line.at("kind") == kind) lines.push_back(line);
  }
  return lines;
}

TEST(BestWeights, AreThoseOfTheFirstBestEvaluation) {
  at::Tensor weight = at::zeros({2}, at::kDouble);
  int64_t updates = 0;
  BestWeights best([&](State& state) {
    state.tensor("weight", weight);
    state.value("updates", updates);
  });
  const std::vector<Json> scores = {nullptr, 0.3, 0.7, 0.7, nullptr, 0.5};
  for (const Json& score : scores) {
    weight.fill_(static_cast<double>(++updates));
    best.offer(10 * updates, score);
  }
  best.restore();
  EXPECT_EQ(best.step(), 30);
  EXPECT_EQ(best.score(), 0.7);
  EXPECT_EQ(best.evaluations(), 6);
  EXPECT_EQ(updates, 3);
  EXPECT_EQ(weight[1].item<double>(), 3);
}

// What a run that ends at the selected step leaves: the same schedule, cut by stop_early.
TEST(BestWeights, AreLeftAndEvaluatedOnTheTestAsIfTrainingHadEndedThere) {
  TrainingRuns runs;
  const Json keys = selecting({{"populations", {"saved", "mean", "tower:2", "precise", "batch"}},
                               {"precise_batches", 2},
                               {"optimizer", {{"name", "sgd"}, {"lr", 1}, {"schedule", "constant"}}}});
  const TrainedRun run = runs.run(TrainingRuns::spec(keys), 2);
  const Json& history = run.result.at("history");
  ASSERT_EQ(history.size(), 12u);
  int64_t best = 0;
  double highest = -1;
  for (const Json& entry : history) {
    EXPECT_EQ(entry.at("split"), "validation");
    if (const double score = entry.at("mean_iou").at("saved"); score > highest) {
      highest = score;
      best = entry.at("step");
    }
  }
  ASSERT_LT(best, 12) << "the case shows nothing where the last evaluation is the best";
  const Json& selected = run.result.at("selected");
  EXPECT_EQ(selected.at("step"), best);
  EXPECT_EQ(selected.at("mean_iou"), highest);
  EXPECT_EQ(selected.at("validation_samples"), 6);
  EXPECT_EQ(selected.at("evaluations"), 12);
  EXPECT_EQ(run.result.at("steps"), 12);

  Json cut = keys;
  cut["stop_early"] = {{"every", 1}, {"chance_after", best}, {"chance_above", 1e-9}};
  const TrainedRun ended = runs.run(TrainingRuns::spec(cut), 2);
  ASSERT_EQ(ended.result.at("steps"), best);
  ASSERT_EQ(ended.result.at("selected").at("step"), best);
  expect_equal(run.tensors, ended.tensors);
  expect_equal(run.pairs, ended.pairs);
  EXPECT_EQ(run.result.at("final"), ended.result.at("final"));
  EXPECT_EQ(lines_of(run, "eval").size(), 12u * 5);
  ASSERT_EQ(lines_of(run, "test").size(), 5u);
  EXPECT_EQ(lines_of(run, "test")[0].at("metrics"), run.result.at("final").at("saved"));
}

TEST(BestWeights, DoNotDependOnTheTestNorOnThePlacement) {
  TrainingRuns runs;
  const TrainedRun one = runs.run(TrainingRuns::spec(selecting()), 1);
  const TrainedRun four = runs.run(TrainingRuns::spec(selecting()), 4);
  EXPECT_EQ(one.result.at("selected"), four.result.at("selected"));
  expect_near(one.tensors, four.tensors, 1e-10);
  Json task = TrainingRuns::spec().task;
  task["test"] = 3;
  const TrainedRun other = runs.run(TrainingRuns::spec(selecting({{"task", task}})), 1);
  EXPECT_EQ(one.result.at("selected"), other.result.at("selected"));
  expect_equal(one.tensors, other.tensors);
  EXPECT_NE(one.result.at("final"), other.result.at("final"));
}

TEST(BestWeights, MayBeThoseOfTheAveragedWeightsOrOfAnotherPopulation) {
  TrainingRuns runs;
  const TrainedRun averaged =
      runs.run(TrainingRuns::spec(selecting({{"weight_ema", 0.5}, {"select", {{"population", "ema"}}}})), 1);
  const TrainedRun of_batch = runs.run(TrainingRuns::spec(selecting({{"populations", {"saved", "batch"}},
                                                                     {"select", {{"population", "batch"}}}})),
                                       1);
  for (const auto& [run, population] : {std::pair(&averaged, "ema"), std::pair(&of_batch, "batch")}) {
    const Json& selected = run->result.at("selected");
    for (const Json& entry : run->result.at("history"))
      EXPECT_LE(entry.at("mean_iou").at(population), selected.at("mean_iou"));
    EXPECT_EQ(selected.at("population"), population);
  }
}

TEST(BestWeights, AreEvaluatedAsSavedWhereAStrategyHasNoRunningStatistics) {
  TrainingRuns runs;
  const TrainedRun run =
      runs.run(TrainingRuns::spec(selecting({{"strategy", {{"name", "group_norm"}, {"groups", 2}}},
                                             {"populations", {"batch"}},
                                             {"select", {{"population", "batch"}}}})),
               1);
  EXPECT_TRUE(run.result.at("selected").at("mean_iou").is_number());
}

TEST(Validation, IsAPartOfTheTrainingSetThatNoStepTrainsOn) {
  const RunSpec spec = TrainingRuns::spec(selecting({{"precision", "float32"}}));
  const RunSpec plain = TrainingRuns::spec({{"precision", "float32"}});
  on_thread_ranks(1, at::kCPU, [&](World& world) {
    Data data(spec, "", world), all(plain, "", world);
    std::vector<at::Tensor> validation;
    data.each(EvaluationSplit::validation, [&](const Batch& batch) {
      for (const at::Tensor& image : batch.images.unbind()) validation.push_back(image);
    });
    ASSERT_EQ(validation.size(), 6u);
    const auto is_one = [&](const at::Tensor& image) {
      return std::ranges::any_of(validation, [&](const at::Tensor& held) {
        return at::equal(image, held) || at::equal(image.flip({2}), held);
      });
    };
    int64_t met = 0, met_by_all = 0;
    for (int64_t step = 0; step < 12; ++step) {
      for (const Batch& batch : {data.training(step), data.calibration(step)})
        for (const at::Tensor& image : batch.images.unbind()) met += is_one(image);
      for (const at::Tensor& image : all.training(step).images.unbind()) met_by_all += is_one(image);
    }
    EXPECT_EQ(met, 0);
    EXPECT_GT(met_by_all, 0);
    EXPECT_EQ(data.epochs(9), 4);  // 9 steps of 8 samples of the 18 that are left
  });
}

TEST(Validation, IsDealtToSortedShardsWithoutItsSamples) {
  TrainingRuns runs;
  const TrainedRun run = runs.run(TrainingRuns::spec(selecting({{"shards", "sorted:brightness"}})), 2);
  EXPECT_EQ(run.result.at("selected").at("validation_samples"), 6);
}

}  // namespace
}  // namespace bnlab
