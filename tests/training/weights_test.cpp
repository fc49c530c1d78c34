// Weights that a run starts from, weights that the ranks average, and what the trainer refuses of them.
#include "harness/training/weights.hpp"

#include <unistd.h>

#include <algorithm>

#include "harness/store/run_folder.hpp"
#include "harness/support/error.hpp"
#include "harness/training/safetensors.hpp"
#include "tests/models/one_rank_network.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class Weights : public ::testing::Test {
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
    EXPECT_EQ(report.status, Status::error);
    return report.message;
  }

  static std::map<std::string, at::Tensor> part(const std::map<std::string, at::Tensor>& all, bool head) {
    std::map<std::string, at::Tensor> found;
    for (const auto& [name, tensor] : all)
      if ((name.rfind("head.", 0) == 0) == head) found[name] = tensor;
    return found;
  }

  TrainingRuns runs_;
};

TEST_F(Weights, ARunStartsFromTheWeightsOfAnother) {
  const TrainedRun first = runs_.run(TrainingRuns::spec(), 1);
  const Json from = {{"file", weights(first)}};
  expect_equal(parameters_of(runs_.run(still({{"init_from", from}}), 2)), parameters_of(first));
  const RankReport report = runs_.reports(still({{"init_from", from}}), 1, runs_.new_folder()).at(0);
  EXPECT_EQ(report.notes, std::vector<std::string>{"init_from: 32 tensors used"});
  // The running statistics go on from where they were: 0.9 of the loaded pair is still there after a step.
  const TrainedRun kept =
      runs_.run(still({{"init_from", from}, {"strategy", {{"name", "sync"}, {"momentum", 1e-12}}}}), 2);
  expect_near(statistics_of(kept), statistics_of(first), 1e-9);
}

TEST_F(Weights, OrFromItsFeaturesAlone) {
  const TrainedRun first = runs_.run(TrainingRuns::spec(), 1);
  const TrainedRun fresh = runs_.run(still(Json::object()), 1);
  const TrainedRun second =
      runs_.run(still({{"init_from", {{"file", weights(first)}, {"part", "features"}}}}), 1);
  expect_equal(part(parameters_of(second), false), part(parameters_of(first), false));
  expect_near(part(parameters_of(second), true), part(parameters_of(fresh), true), 1e-200);
  EXPECT_FALSE(at::equal(first.tensors.at("head.weight"), fresh.tensors.at("head.weight")));
}

TEST_F(Weights, WeightsThatDoNotFitAreRefusedByName) {
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

// What PyTorch's implementations leave, and what only some of which is asked for.
class Import : public ::testing::Test {
 protected:
  static constexpr const char* kModel =
      R"({"name": "fcn", "auxiliary_weight": 0.4, "backbone": {"name": "resnet", "width": 2}})";

  Import() {
    std::filesystem::create_directories(folder_);
    for (const auto& tensors : {built_.network().named_parameters(), built_.network().named_buffers()})
      for (const auto& [name, tensor] : tensors.pairs())
        file_.push_back({name, at::full_like(tensor, ++values_).detach()});
  }
  ~Import() override { std::filesystem::remove_all(folder_); }

  // The tensors of the backbone under the names that a network for classification gives them.
  std::vector<NamedTensor> of_classification() const {
    std::vector<NamedTensor> all;
    for (const NamedTensor& t : file_)
      if (t.name.starts_with("backbone.")) all.push_back({t.name.substr(9), t.tensor});
    all.push_back({"fc.weight", at::ones({1000, 16}, at::kDouble)});
    all.push_back({"fc.bias", at::ones({1000}, at::kDouble)});
    all.push_back({"bn1.num_batches_tracked", at::zeros({}, at::kLong)});
    return all;
  }

  std::string load(const std::vector<NamedTensor>& tensors, LoadedPart part = LoadedPart::all) {
    const std::string file = (folder_ / "w.safetensors").string();
    write_safetensors(file, tensors);
    return load_weights({file, part}, built_.network());
  }

  std::string refusal(const std::vector<NamedTensor>& tensors, LoadedPart part = LoadedPart::all) {
    try {
      return "accepted: " + load(tensors, part);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::refused);
      return e.what();
    }
  }

  // How many tensors of the network, of a part, are those of file_.
  std::map<Part, size_t> loaded() {
    std::map<Part, size_t> found;
    for (const auto& tensors : {built_.network().named_parameters(), built_.network().named_buffers()}) {
      for (const auto& [name, tensor] : tensors.pairs()) {
        const auto same = [&, n = name](const NamedTensor& t) { return t.name == n; };
        found[built_.network().part_of(name)] +=
            at::equal(tensor, std::ranges::find_if(file_, same)->tensor.to(tensor.scalar_type()));
      }
    }
    return found;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("bnlab_import_" + std::to_string(::getpid()));
  OneRankNetwork built_{Json::parse(kModel)};
  double values_ = 0;
  std::vector<NamedTensor> file_;  // every tensor of the network, with values of its own
};

// 20 convolutions and 20 norms of 4 tensors in the backbone; a convolution and a norm in each of two heads'
// features, a convolution with a bias in each of their ends.
TEST_F(Import, TakesEveryTensorOfAnotherImplementation) {
  file_.push_back({"backbone.bn1.num_batches_tracked", at::zeros({}, at::kLong)});
  EXPECT_EQ(load(file_), "init_from: 114 tensors used, 1 left (1 num_batches_tracked)");
  EXPECT_EQ(loaded(), (std::map<Part, size_t>{{Part::backbone, 100}, {Part::features, 10}, {Part::head, 4}}));
}

TEST_F(Import, TakesOnlyTheFeaturesWhereTheClassesAreOthers) {
  for (NamedTensor& t : file_)
    if (t.name.find("classifier.4.") != std::string::npos) t.tensor = at::ones({1000});
  EXPECT_EQ(load(file_, LoadedPart::features),
            "init_from: 110 tensors of the features used, 4 left (classifier.4.weight, classifier.4.bias, "
            "aux_classifier.4.weight, aux_classifier.4.bias)");
  EXPECT_EQ(loaded(), (std::map<Part, size_t>{{Part::backbone, 100}, {Part::features, 10}, {Part::head, 0}}));
}

TEST_F(Import, TakesOnlyTheBackbone) {
  EXPECT_EQ(load(file_, LoadedPart::backbone),
            "init_from: 100 tensors of the backbone used, 14 left (classifier.0.weight, classifier.1.weight, "
            "classifier.1.bias, classifier.4.weight, classifier.4.bias, aux_classifier.0.weight and 8 more)");
  EXPECT_EQ(loaded(), (std::map<Part, size_t>{{Part::backbone, 100}, {Part::features, 0}, {Part::head, 0}}));
}

TEST_F(Import, TakesTheBackboneOfANetworkForClassification) {
  EXPECT_EQ(load(of_classification(), LoadedPart::backbone),
            "init_from: 100 tensors of the backbone used (backbone.* is * in the file), 3 left (1 "
            "num_batches_tracked, fc.weight, fc.bias)");
  EXPECT_EQ(loaded(), (std::map<Part, size_t>{{Part::backbone, 100}, {Part::features, 0}, {Part::head, 0}}));
}

TEST_F(Import, RefusesWhatIsLeftOverInThePartThatIsAskedFor) {
  std::vector<NamedTensor> deeper = of_classification();
  deeper.push_back({"layer3.2.conv1.weight", at::ones({8, 8, 3, 3})});
  std::string message = refusal(deeper, LoadedPart::backbone);
  EXPECT_NE(message.find("nothing here takes: layer3.2.conv1.weight"), std::string::npos) << message;
  message = refusal(of_classification());
  EXPECT_NE(message.find("it lacks: backbone.conv1.weight, backbone.bn1.weight, "), std::string::npos)
      << message;
  EXPECT_NE(message.find(" and 108 more; nothing here takes: "), std::string::npos) << message;
  EXPECT_NE(message.find("nothing here takes: bn1.bias"), std::string::npos) << message;
}

TEST_F(Import, RefusesWhatIsLacking) {
  std::vector<NamedTensor> shallower = of_classification();
  std::erase_if(shallower, [](const NamedTensor& t) { return t.name.starts_with("layer4.1.bn2."); });
  const std::string message = refusal(shallower, LoadedPart::backbone);
  EXPECT_NE(message.find("it lacks: backbone.layer4.1.bn2.weight, backbone.layer4.1.bn2.bias, "),
            std::string::npos)
      << message;
}

TEST_F(Import, WidensNumbersButNeverRoundsThem) {
  for (NamedTensor& t : file_) t.tensor = t.tensor.to(at::kFloat);
  load(file_);
  EXPECT_EQ(loaded().at(Part::backbone), 100u);
  OneRankNetwork narrow(Json::parse(kModel), 5, "per_tower", {}, at::kFloat);
  EXPECT_NO_THROW(load_weights({(folder_ / "w.safetensors").string()}, narrow.network()));
  file_[3].tensor = file_[3].tensor.to(at::kDouble);
  load(file_);
  EXPECT_THROW(load_weights({(folder_ / "w.safetensors").string()}, narrow.network()), Error);
}

TEST_F(Import, TheBackboneOfAModelThatHasNoneIsRefused) {
  OneRankNetwork unet({{"name", "unet"}, {"base", 2}, {"levels", 2}});
  load(file_);
  try {
    load_weights({(folder_ / "w.safetensors").string(), LoadedPart::backbone}, unet.network());
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "init_from.part: this model has no backbone");
  }
}

// Means are linear: with plain or momentum SGD, averaging the weights and momenta that the ranks' own
// gradients lead to is averaging the gradients. Each rank's pair is its own tower's, so that their mean is
// what the strategy that averages pairs saves.
TEST_F(Weights, AveragingWeightsInEveryStepIsAveragingGradients) {
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
    const int tensors = momentum == 0 ? 1 : 2;  // weights; and momenta where there are any; in float64
    EXPECT_DOUBLE_EQ(traffic.at("bytes_per_step"),
                     0.75 * tensors * 8 * rarely.result.at("parameters").get<double>());
  }
}

// Whether the pairs are averaged, or merged when they are frozen, must not depend on what a rank itself has
// seen.
TEST_F(Weights, AveragingWeightsGoesOnWhereARankHasNoSamples) {
  Json keys = {{"towers", 2}, {"batch_per_tower", {2, 0}}, {"strategy", "per_tower"}};
  keys["average_weights_every"] = 1;
  runs_.run(TrainingRuns::spec(keys), 2);
  keys["average_weights_every"] = 2;
  keys["strategy"] = {{"name", "frozen"}, {"from_step", 1}, {"base", "per_tower"}};
  runs_.run(TrainingRuns::spec(keys), 2);
}

TEST_F(Weights, AveragingWeightsNeedsOneTowerPerRank) {
  const std::string message = refusal(TrainingRuns::spec({{"average_weights_every", 2}}), 2);
  EXPECT_EQ(message, "average_weights_every: expected one tower per rank, got 2; use --ranks 4");
}

TEST_F(Weights, AnUnknownShardKeyIsRefusedWithTheKeysOfTheTask) {
  RunSpec spec = TrainingRuns::spec();
  spec.shard_key = "colour";  // which no spec can say
  const std::string message = refusal(spec, 1);
  EXPECT_EQ(message, "shards: the task shapes has no key \"colour\" to sort by; known: class, brightness");
}

}  // namespace
}  // namespace bnlab
