// A weights file gives the numbers that its run recorded, and predictions are what its evaluation counts.
#include "harness/inference/trained_run.hpp"

#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class Evaluate : public ::testing::Test {
 protected:
  static EvaluateJob job(const RunSpec& spec, const TrainedRun& run,
                         const std::vector<std::string>& populations) {
    EvaluateJob job;
    job.spec = spec;
    job.weights = (run.folder / kWeightsFile).string();
    job.pairs = run.pairs.empty() ? "" : (run.folder / kPopulationsFile).string();
    job.populations = populations;
    return job;
  }
  TrainingRuns runs_;
};

TEST_F(Evaluate, GivesTheNumbersOfTheRecord) {
  const std::vector<std::string> all = {"precise", "tower:1", "saved", "mean", "batch", "pooled"};
  for (const char* strategy :
       {R"("per_tower")", R"("sync")", R"("averaged")", R"("shuffle")",
        R"({"name": "batch_renorm", "r_max": 1.5, "d_max": 0.5})", R"({"name": "frozen", "from_step": 3})",
        R"({"name": "precise", "batches": 2, "base": "sync"})"}) {
    SCOPED_TRACE(strategy);
    const RunSpec spec = TrainingRuns::spec({{"strategy", Json::parse(strategy)},
                                             {"populations", all},
                                             {"precise_batches", 2},
                                             {"weight_ema", 0.9}});
    const TrainedRun run = runs_.run(spec, 2);
    Json recorded = run.result.at("final");
    recorded.erase("ema");
    EvaluateJob asked = job(spec, run, all);
    EXPECT_EQ(evaluate_weights(asked), recorded);
    asked.ranks = 4;
    EXPECT_EQ(evaluate_weights(asked), recorded);
    asked.ranks = 1;
    asked.populations = {"precise"};
    EXPECT_EQ(evaluate_weights(asked), Json({{"precise", recorded.at("precise")}}));
  }
}

TEST_F(Evaluate, GivesTheNumbersOfTheRecordForOwnTowersAndMixes) {
  const std::vector<std::string> all = {"own_tower", "mix:0.25", "saved"};
  const RunSpec spec =
      TrainingRuns::spec({{"strategy", "per_tower"}, {"populations", all}, {"shards", "sorted:brightness"}});
  const TrainedRun run = runs_.run(spec, 2);
  EvaluateJob asked = job(spec, run, all);
  EXPECT_EQ(evaluate_weights(asked), run.result.at("final"));
  asked.ranks = 4;
  EXPECT_EQ(evaluate_weights(asked), run.result.at("final"));
}

// The limits of batch renormalisation still rise at the end of this run, and recomputing goes by them.
TEST_F(Evaluate, GoesByTheStepOfTheRunWhateverTheOrderOfPopulations) {
  const Json renorm = {{"name", "batch_renorm"},
                       {"r_max", 3},
                       {"d_max", 5},
                       {"schedule", {{"start_step", 0}, {"end_step", 20}}}};
  std::vector<Json> precise;
  for (const Json& populations : {Json{"saved", "precise"}, Json{"precise", "saved"}}) {
    const RunSpec spec =
        TrainingRuns::spec({{"strategy", renorm}, {"populations", populations}, {"precise_batches", 2}});
    const TrainedRun run = runs_.run(spec, 1);
    precise.push_back(run.result.at("final").at("precise"));
    EXPECT_EQ(evaluate_weights(job(spec, run, {"precise"})).at("precise"), precise.back());
  }
  EXPECT_EQ(precise[0], precise[1]);
}

// Those after which the weights were selected, where the limits are still lower than at the end.
TEST_F(Evaluate, GoesByTheStepAtWhichTheWeightsWereLeft) {
  const Json renorm = {{"name", "batch_renorm"},
                       {"r_max", 3},
                       {"d_max", 5},
                       {"schedule", {{"start_step", 0}, {"end_step", 40}}}};
  const RunSpec spec = TrainingRuns::spec({{"strategy", renorm},
                                           {"populations", {"saved", "precise"}},
                                           {"precise_batches", 2},
                                           {"steps", 20},
                                           {"eval_every", 1},
                                           {"optimizer", {{"name", "sgd"}, {"lr", 1}}},
                                           {"select", {{"validation_share", 0.25}}}});
  const TrainedRun run = runs_.run(spec, 1);
  EvaluateJob asked = job(spec, run, {"saved", "precise"});
  asked.steps = run.result.at("selected").at("step").get<int64_t>();
  ASSERT_LT(*asked.steps, 20);
  EXPECT_EQ(evaluate_weights(asked), run.result.at("final"));
}

// The file holds the recomputed pairs, from which those of the training can no longer be told.
TEST_F(Evaluate, TakesTheSavedPairsOfTheFileAsTheyAre) {
  const Json renorm = {{"name", "batch_renorm"}, {"r_max", 3}, {"d_max", 5}};
  const RunSpec spec =
      TrainingRuns::spec({{"strategy", {{"name", "precise"}, {"batches", 2}, {"base", renorm}}},
                          {"populations", {"mean", "saved"}}});
  const TrainedRun run = runs_.run(spec, 2);
  EXPECT_EQ(evaluate_weights(job(spec, run, {"mean", "saved"})), run.result.at("final"));
}

// Under autocast, as they were recomputed for the evaluation.
TEST_F(Evaluate, InBfloat16TheFileHoldsTheRecomputedPairsThatWereEvaluated) {
  const RunSpec spec = TrainingRuns::spec(
      {{"strategy", {{"name", "precise"}, {"batches", 2}, {"base", "sync"}}}, {"precision", "bfloat16"}});
  const TrainedRun run = runs_.run(spec, 1);
  RunSpec as_they_are = spec;
  as_they_are.strategy = spec.strategy.at("base");
  EXPECT_EQ(evaluate_weights(job(as_they_are, run, {"saved"})), run.result.at("final"));
}

TEST_F(Evaluate, NeedsNoRecordedPopulationForSavedBatchAndPrecise) {
  const RunSpec spec = TrainingRuns::spec();
  const TrainedRun run = runs_.run(spec, 1);
  const Json metrics = evaluate_weights(job(spec, run, {"saved", "batch", "precise"}));
  EXPECT_EQ(metrics.at("saved"), run.result.at("final").at("saved"));
  EXPECT_EQ(metrics.size(), 3u);
}

TEST_F(Evaluate, OfAStrategyWithoutRunningStatisticsThereIsOnlySaved) {
  const RunSpec spec = TrainingRuns::spec({{"strategy", "group_norm"}});
  const TrainedRun run = runs_.run(spec, 1);
  EXPECT_EQ(evaluate_weights(job(spec, run, {"batch", "mean"})), run.result.at("final"));
}

TEST_F(Evaluate, SaysWhichPairsTheRunCarried) {
  const RunSpec spec = TrainingRuns::spec({{"populations", {"saved", "mean", "tower:3"}}});
  const TrainedRun run = runs_.run(spec, 1);
  try {
    evaluate_weights(job(spec, run, {"pooled"}));
    FAIL() << "evaluated under a pair that is not there";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the run carried no pair for population pooled (there are: saved, precise, batch, mean, "
                 "tower:3); a run keeps those that its spec lists in populations");
  }
}

class Predict : public ::testing::Test {
 protected:
  static EvaluateJob job(const RunSpec& spec, const TrainedRun& run, const std::string& population) {
    EvaluateJob job;
    job.spec = spec;
    job.weights = (run.folder / kWeightsFile).string();
    job.pairs = run.pairs.empty() ? "" : (run.folder / kPopulationsFile).string();
    job.populations = {population};
    return job;
  }
  static double pixel_accuracy(const std::vector<Prediction>& predictions) {
    int64_t right = 0, all = 0;
    for (const Prediction& prediction : predictions) {
      for (size_t i = 0; i < prediction.truth.size(); ++i) {
        right += prediction.truth[i] == prediction.predicted[i];
        all += prediction.truth[i] != kVoidId;
      }
    }
    return static_cast<double>(right) / static_cast<double>(all);
  }
  TrainingRuns runs_;
};

TEST_F(Predict, AnswersAsTheRecordCounts) {
  const RunSpec spec =
      TrainingRuns::spec({{"strategy", "per_tower"},
                          {"populations", {"saved", "batch", "mean", "precise", "mix:0.5", "own_tower"}},
                          {"shards", "sorted:brightness"},
                          {"precise_batches", 2}});
  const TrainedRun run = runs_.run(spec, 2);
  for (const char* population : {"saved", "batch", "mean", "precise", "mix:0.5", "own_tower"}) {
    SCOPED_TRACE(population);
    const auto predictions = predict(job(spec, run, population), {}, 1 << 20);
    ASSERT_GT(predictions.size(), 3u);
    EXPECT_DOUBLE_EQ(pixel_accuracy(predictions),
                     run.result.at("final").at(population).at("pixel_accuracy").get<double>());
  }
}

TEST_F(Predict, TakesTheSamplesThatItIsAskedFor) {
  const RunSpec spec = TrainingRuns::spec({{"strategy", "none"}});
  const TrainedRun run = runs_.run(spec, 1);
  const auto all = predict(job(spec, run, "saved"), {}, 1 << 20);
  const auto two = predict(job(spec, run, "saved"), {2, 0}, 6);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].sample, 2);
  EXPECT_EQ(two[0].truth, all[2].truth);
  EXPECT_EQ(two[0].predicted, all[2].predicted);
  EXPECT_EQ(two[1].image, all[0].image);
  EXPECT_EQ(two[0].image.size(), static_cast<size_t>(3 * two[0].height * two[0].width));
  EXPECT_EQ(predict(job(spec, run, "saved"), {}, 3).size(), 3u);
}

TEST_F(Predict, RefusesASampleThatIsNotThere) {
  const RunSpec spec = TrainingRuns::spec({{"strategy", "none"}});
  const TrainedRun run = runs_.run(spec, 1);
  try {
    predict(job(spec, run, "saved"), {1 << 20}, 6);
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::usage);
    EXPECT_NE(std::string(e.what()).find("the test split has samples 0 to "), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace bnlab
