// Weights that a run starts from, weights that the ranks average, and what the trainer refuses of them.
#include "harness/records/run_folder.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class Checkpoint : public ::testing::Test {
 protected:
  // A run whose training changes no weight.
  static RunSpec still(const Json& keys) {
    Json all = {{"steps", 1}, {"optimizer", {{"lr", 1e-300}, {"momentum", 0}}}};
    all.update(keys);
    return TrainingRuns::spec(all);
  }

  static std::string weights(const TrainedRun& run) { return (run.folder / kWeightsFile).string(); }

  std::string refusal(const RunSpec& spec, int ranks) {
    const RankReport report = runs_.reports(spec, ranks, runs_.new_folder()).at(0);
    EXPECT_EQ(report.status, "error");
    return report.message;
  }

  static std::map<std::string, at::Tensor> part(const std::map<std::string, at::Tensor>& all, bool head) {
    std::map<std::string, at::Tensor> found;
    for (const auto& [name, tensor] : all) {
      if ((name.rfind("head.", 0) == 0) == head) {
        found[name] = tensor;
      }
    }
    return found;
  }

  TrainingRuns runs_;
};

TEST_F(Checkpoint, ARunStartsFromTheWeightsOfAnother) {
  const TrainedRun first = runs_.run(TrainingRuns::spec(), 1);
  const Json from = {{"file", weights(first)}};
  expect_equal(parameters_of(runs_.run(still({{"init_from", from}}), 2)), parameters_of(first));
  // The running statistics go on from where they were: 0.9 of the loaded pair is still there after a step.
  const TrainedRun kept =
      runs_.run(still({{"init_from", from}, {"strategy", {{"name", "sync"}, {"momentum", 1e-12}}}}), 2);
  expect_near(statistics_of(kept), statistics_of(first), 1e-9);
}

TEST_F(Checkpoint, OrFromItsFeaturesAlone) {
  const TrainedRun first = runs_.run(TrainingRuns::spec(), 1);
  const TrainedRun fresh = runs_.run(still(Json::object()), 1);
  const TrainedRun second =
      runs_.run(still({{"init_from", {{"file", weights(first)}, {"part", "features"}}}}), 1);
  expect_equal(part(parameters_of(second), false), part(parameters_of(first), false));
  expect_near(part(parameters_of(second), true), part(parameters_of(fresh), true), 1e-200);
  EXPECT_FALSE(at::equal(first.tensors.at("head.weight"), fresh.tensors.at("head.weight")));
}

TEST_F(Checkpoint, WeightsThatDoNotFitAreRefusedByName) {
  const TrainedRun plain = runs_.run(still({{"strategy", "group_norm"}}), 1);
  std::string message = refusal(still({{"init_from", {{"file", weights(plain)}}}}), 1);
  EXPECT_NE(message.find("it lacks: encoder0.norm1.running_mean"), std::string::npos) << message;
  EXPECT_EQ(message.find("nothing here takes"), std::string::npos) << message;

  const TrainedRun pooled = runs_.run(still(Json::object()), 1);
  message = refusal(still({{"strategy", "group_norm"}, {"init_from", {{"file", weights(pooled)}}}}), 1);
  EXPECT_NE(message.find("nothing here takes: decoder0.norm1.running_mean"), std::string::npos) << message;

  message = refusal(still({{"precision", "float32"}, {"init_from", {{"file", weights(pooled)}}}}), 1);
  EXPECT_NE(message.find("expected Float ["), std::string::npos) << message;
  EXPECT_NE(message.find("got Double ["), std::string::npos) << message;

  message = refusal(still({{"init_from", {{"file", "/nowhere/w.safetensors"}}}}), 1);
  EXPECT_NE(message.find("/nowhere/w.safetensors: cannot be read"), std::string::npos) << message;
}

// Means are linear: with plain or momentum SGD, averaging the weights and momenta that the ranks' own
// gradients lead to is averaging the gradients. Each rank's pair is its own tower's, so that their mean is
// what the strategy that averages pairs saves.
TEST_F(Checkpoint, AveragingWeightsInEveryStepIsAveragingGradients) {
  const Json towers = {{"towers", 2}, {"batch_per_tower", {3, 1}}, {"strategy", "averaged"}};
  for (const double momentum : {0.0, 0.9}) {
    Json keys = towers;
    keys["optimizer"] = {{"lr", 0.1}, {"momentum", momentum}, {"weight_decay", 1e-3}};
    const TrainedRun gradients = runs_.run(TrainingRuns::spec(keys), 2);
    keys["strategy"] = "per_tower";
    keys["average_weights_every"] = 1;
    const TrainedRun averaged = runs_.run(TrainingRuns::spec(keys), 2);
    expect_near(parameters_of(gradients), parameters_of(averaged), 1e-12);
    expect_near(statistics_of(gradients), statistics_of(averaged), 1e-12);
    keys["average_weights_every"] = 2;
    const TrainedRun rarely = runs_.run(TrainingRuns::spec(keys), 2);
    EXPECT_GT(
        (rarely.tensors.at("head.weight") - averaged.tensors.at("head.weight")).abs().max().item<double>(),
        1e-9);
    const Json& traffic = rarely.result.at("communication").at("gradients");
    EXPECT_DOUBLE_EQ(traffic.at("collectives_per_step"), 0.75);  // after steps 2, 4 and 5 of steps 2 to 5
    // Weights and momenta, in float64.
    EXPECT_DOUBLE_EQ(traffic.at("bytes_per_step"),
                     0.75 * 2 * 8 * rarely.result.at("parameters").get<double>());
  }
}

// Whether the pairs are averaged, or merged when they are frozen, must not depend on what a rank itself has seen.
TEST_F(Checkpoint, AveragingWeightsGoesOnWhereARankHasNoSamples) {
  Json keys = {{"towers", 2}, {"batch_per_tower", {2, 0}}, {"strategy", "per_tower"}};
  keys["average_weights_every"] = 1;
  runs_.run(TrainingRuns::spec(keys), 2);
  keys["average_weights_every"] = 2;
  keys["strategy"] = {{"name", "frozen"}, {"from_step", 1}, {"base", "per_tower"}};
  runs_.run(TrainingRuns::spec(keys), 2);
}

TEST_F(Checkpoint, AveragingWeightsNeedsOneTowerPerRank) {
  const std::string message = refusal(TrainingRuns::spec({{"average_weights_every", 2}}), 2);
  EXPECT_EQ(message, "average_weights_every: expected one tower per rank, got 2; use --ranks 4");
}

TEST_F(Checkpoint, AnUnknownShardKeyIsRefusedWithTheKeysOfTheTask) {
  const std::string message = refusal(TrainingRuns::spec({{"shards", "sorted:colour"}}), 1);
  EXPECT_EQ(message, "shards: the task shapes has no key \"colour\" to sort by; known: class, brightness");
}

}  // namespace
}  // namespace bnlab
