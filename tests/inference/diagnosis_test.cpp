// What is said of a network that evaluates worse than it trains: each cause on numbers of its own, and on
// networks that were trained so.
#include "harness/inference/diagnosis.hpp"

#include "harness/store/run_folder.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

using Causes = std::vector<Cause>;
constexpr double kMargin = 0.02;

DiagnosisNumbers numbers(double training, double saved, double precise, double batch) {
  DiagnosisNumbers n;
  n.metric = "mean_iou";
  n.training = training;
  n.saved = saved;
  n.precise = precise;
  n.batch = batch;
  return n;
}

TEST(Diagnosis, WhatRecomputingWinsBackWasLagging) {
  const Diagnosis d = diagnosis_of(numbers(0.7, 0.24, 0.67, 0.66), kMargin);
  EXPECT_EQ(d.causes, Causes{Cause::lagging_statistics});
  EXPECT_EQ(
      d.sentence,
      "By mean_iou: lagging statistics: recomputed over training batches they reach 0.670, as they were "
      "saved 0.240.");
}

TEST(Diagnosis, WhatTheBatchItselfWinsBackIsOfASmallBatchTheLargestLossFirst) {
  const Diagnosis d = diagnosis_of(numbers(0.6, 0.38, 0.415, 0.537), kMargin);
  EXPECT_EQ(d.causes, (Causes{Cause::small_batch, Cause::lagging_statistics}));
  EXPECT_EQ(
      d.sentence,
      "By mean_iou: a small batch: only the moments of the test batch itself, grouped as in training, reach "
      "0.537, fixed statistics at most 0.415; and lagging statistics: recomputed over training batches they "
      "reach 0.415, as they were saved 0.380.");
}

TEST(Diagnosis, SavedStatisticsOfOneShardAreSkewedAsFarAsRecomputingItDoesNotHelp) {
  DiagnosisNumbers n = numbers(0.6, 0.3, 0.58, 0.5);
  n.nearest_tower = 3;
  n.nearest_shard = 0.31;
  const Diagnosis d = diagnosis_of(n, kMargin);
  EXPECT_EQ(d.causes, Causes{Cause::skewed_shards});
  EXPECT_NE(d.sentence.find("those of tower 3, whose shard alone gives 0.310, all shards together 0.580"),
            std::string::npos)
      << d.sentence;
  n.nearest_shard = 0.57;
  EXPECT_EQ(diagnosis_of(n, kMargin).causes, Causes{Cause::lagging_statistics});
}

TEST(Diagnosis, AveragedWeightsAreNamedWithWhatMendsThem) {
  DiagnosisNumbers n = numbers(0.6, 0.58, 0.58, 0.57);
  n.ema = 0.1;
  n.ema_precise = 0.59;
  const Diagnosis d = diagnosis_of(n, kMargin);
  EXPECT_EQ(d.causes, Causes{Cause::averaged_weights});
  EXPECT_NE(d.sentence.find("with recomputed statistics 0.590"), std::string::npos) << d.sentence;
}

TEST(Diagnosis, WhereNoStatisticsHelpItSaysHowFarTrainingImagesAreAhead) {
  const Diagnosis d = diagnosis_of(numbers(0.9, 0.66, 0.67, 0.65), kMargin);
  EXPECT_TRUE(d.causes.empty());
  EXPECT_NE(d.sentence.find("training images reach 0.900, so the rest lies between training and test images"),
            std::string::npos)
      << d.sentence;
  DiagnosisNumbers without;
  without.metric = "top1";
  without.saved = without.training = 0.5;
  EXPECT_NE(diagnosis_of(without, kMargin).sentence.find("no running statistics"), std::string::npos);
}

class DiagnosedRun : public ::testing::Test {
 protected:
  DiagnosisNumbers diagnosed(const Json& keys) {
    const RunSpec spec = TrainingRuns::spec(keys);
    const TrainedRun run = runs_.run(spec, 1);
    recorded_ = run.result.at("final");
    EvaluateJob job;
    job.spec = spec;
    job.weights = (run.folder / kWeightsFile).string();
    job.populations = {"saved"};
    return diagnosis_numbers(job);
  }
  TrainingRuns runs_;
  Json recorded_;
};

TEST_F(DiagnosedRun, MeasuresWhatTheRecordHas) {
  const DiagnosisNumbers n = diagnosed(
      {{"strategy", "per_tower"}, {"populations", {"saved", "precise", "batch"}}, {"precise_batches", 3}});
  EXPECT_EQ(n.metric, "mean_iou");
  EXPECT_EQ(n.saved, recorded_.at("saved").at("mean_iou").get<double>());
  EXPECT_EQ(n.precise, recorded_.at("precise").at("mean_iou").get<double>());
  EXPECT_EQ(n.batch, recorded_.at("batch").at("mean_iou").get<double>());
  EXPECT_GT(n.training, 0);
  EXPECT_FALSE(n.nearest_tower);
}

// Of one tower's saved pair and of pooled ones, on shards that differ in their brightness.
TEST_F(DiagnosedRun, KnowsWhoseShardTheSavedStatisticsAreOf) {
  const auto of = [&](const char* strategy, const char* shards, int64_t passes = 1) {
    return diagnosed(
               {{"strategy", Json::parse(strategy)},
                {"accumulate", passes},
                {"shards", shards},
                {"steps", 40},
                {"task",
                 {{"name", "shapes"}, {"size", {16, 16}}, {"train", 64}, {"test", 8}, {"nuisance", 2}}}})
        .nearest_tower;
  };
  EXPECT_EQ(of(R"({"name": "per_tower", "saved_tower": 3})", "sorted:brightness"), 3);
  EXPECT_EQ(of(R"({"name": "per_tower", "saved_tower": 3})", "sorted:brightness", 2), 3);
  EXPECT_EQ(of(R"("per_tower")", "sorted:brightness"), 0);
  EXPECT_FALSE(of(R"("averaged")", "sorted:brightness"));
  EXPECT_FALSE(of(R"({"name": "per_tower", "saved_tower": 3})", "iid"));
}

}  // namespace
}  // namespace bnlab
