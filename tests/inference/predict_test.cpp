// Predictions are what the evaluation of a run counts.
#include "harness/inference/predict.hpp"

#include "harness/error.hpp"
#include "harness/store/run_folder.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

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
  const RunSpec spec = TrainingRuns::spec({{"strategy", "per_tower"},
                                           {"populations", {"saved", "batch", "mean", "precise"}},
                                           {"precise_batches", 2}});
  const TrainedRun run = runs_.run(spec, 2);
  for (const char* population : {"saved", "batch", "mean", "precise"}) {
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
