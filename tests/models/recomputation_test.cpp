// Blocks whose activations are recomputed (spec key recompute) leave what blocks leave that keep them, to the
// bit: every strategy on every model, and whole runs.
#include "harness/recomputation.hpp"

#include "harness/components/registry.hpp"
#include "harness/support/error.hpp"
#include "harness/training/peak_memory.hpp"
#include "harness/training/precision.hpp"
#include "tests/models/one_rank_network.hpp"
#include "tests/models/small_models.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab::recomputation_test {
namespace {

// What two training steps leave of a network: outputs, gradients, parameters and buffers, and what the layers
// have exchanged.
struct Left {
  std::map<std::string, at::Tensor> tensors;
  int64_t exchanges = 0;
};

Left trained(const SmallModel& small, const Json& strategy, Recompute recompute,
             Precision precision = Precision::float64) {
  Ledger ledger;
  CountingCommunicator communicator(1, ledger);
  const at::ScalarType dtype = parameter_type(precision);
  const std::vector<int64_t> towers(2, 4);
  BuiltNetwork built(resolved_component("strategy", strategy),
                     {.statistics = communicator,
                      .host = communicator,
                      .seed = 3,
                      .dtype = dtype,
                      .steps = 10,
                      .samples_per_tower = towers},
                     builder_of(resolved_component("model", small.model), {{small.image_size}, 3, dtype}, 5));
  at::manual_seed(1);
  const at::Tensor images =
      at::randn({8 * small.rows_per_sample, 3, small.image_size[0], small.image_size[1]}, dtype);
  Left left;
  for (int64_t step = 0; step < 2; ++step) {
    built.network().zero_grad();
    const Batch batch{.images = images,
                      .labels = {},
                      .towers = Towers(towers, 1, 0),
                      .rows_per_sample = small.rows_per_sample,
                      .index = static_cast<uint64_t>(step)};
    at::Tensor loss;
    {
      const Autocast autocast(precision, at::kCPU);
      const Outputs outputs = built.forward(batch, {step, 10}, Mode::train, 3, recompute);
      loss = outputs.logits.to(at::kDouble).pow(3).mean();
      if (outputs.auxiliary.defined()) loss = loss + 0.4 * outputs.auxiliary.to(at::kDouble).pow(3).mean();
    }
    left.tensors["loss" + std::to_string(step)] = loss.detach();
    loss.backward();
  }
  for (const auto& [name, parameter] : built.network().named_parameters().pairs()) {
    left.tensors[name] = parameter.detach();
    left.tensors[name + ".grad"] = parameter.grad().defined() ? parameter.grad() : at::zeros({});
  }
  if (RunningStatistics* statistics = built.statistics()) {
    Calibration none;
    statistics->load_into_buffers({}, none);
  }
  for (const auto& [name, buffer] : built.network().named_buffers().pairs()) left.tensors[name] = buffer;
  left.exchanges = ledger.of(Purpose::statistics).collectives;
  return left;
}

class Recomputation : public ::testing::TestWithParam<std::string> {};

// With groups that divide any number of channels.
Json strategy_of(const std::string& name) {
  return name == "group_norm"               ? Json{{"name", name}, {"groups", 1}}
         : name == "weight_standardisation" ? Json{{"name", name}, {"base", "layer_norm"}}
                                            : Json{{"name", name}};
}

TEST_P(Recomputation, LeavesTheSameBitsOnEveryModel) {
  for (const auto& [name, small] : small_models()) {
    SCOPED_TRACE(name);
    const Json strategy = strategy_of(GetParam());
    Left kept;
    try {
      kept = trained(small, strategy, Recompute::none);
    } catch (const Error&) {  // a strategy that refuses the only position of a pyramid's mean
      EXPECT_THROW(trained(small, strategy, Recompute::blocks), Error);
      continue;
    }
    const Left again = trained(small, strategy, Recompute::blocks);
    expect_equal(again.tensors, kept.tensors);
    EXPECT_EQ(again.exchanges, kept.exchanges);
  }
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Recomputation, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) { return info.param; });

TEST(RecomputationOf, LeavesTheSameBitsUnderAutocast) {
  for (const auto& [name, small] : small_models()) {
    SCOPED_TRACE(name);
    expect_equal(trained(small, "sync", Recompute::blocks, Precision::bfloat16).tensors,
                 trained(small, "sync", Recompute::none, Precision::bfloat16).tensors);
  }
}

// What happens where the second forward pass is as good as any other: gradients are right, since the moments
// are, but running statistics move twice per step, and so do the exchanges of the forward pass.
TEST(RecomputationOf, TheNaiveOneExchangesAndRemembersTwice) {
  const SmallModel& small = small_models().at("unet");
  const Left kept = trained(small, "sync", Recompute::none), naive = trained(small, "sync", Recompute::naive);
  int64_t sites = 0;
  for (const auto& [name, tensor] : kept.tensors) {
    if (name.ends_with("running_mean")) {
      ++sites;
      EXPECT_FALSE(at::equal(naive.tensors.at(name), tensor)) << name;
    } else if (name.ends_with(".grad")) {
      EXPECT_TRUE(at::equal(naive.tensors.at(name), tensor)) << name;
    }
  }
  EXPECT_EQ(kept.exchanges, 2 * 2 * sites);
  EXPECT_EQ(naive.exchanges, 2 * 3 * sites);
}

// Renormalised by a pair that has moved in between, a naive second pass computes other activations.
TEST(RecomputationOf, TheNaiveOneSpoilsGradientsWhereRunningStatisticsFeedTraining) {
  const SmallModel& small = small_models().at("unet");
  const Json strategy = {{"name", "batch_renorm"}, {"schedule", nullptr}};
  const auto gradient = [&](Recompute recompute) {
    return trained(small, strategy, recompute).tensors.at("encoder0.conv1.weight.grad");
  };
  EXPECT_FALSE(at::equal(gradient(Recompute::naive), gradient(Recompute::none)));
  EXPECT_TRUE(at::equal(gradient(Recompute::blocks), gradient(Recompute::none)));
}

TEST(RecomputationOf, TrainingLeavesTheSameBitsOnRanks) {
  TrainingRuns runs;
  for (const Json& keys :
       {Json{{"strategy", "sync"}}, Json{{"strategy", "shuffle"}},
        Json{{"strategy", {{"name", "sync"}, {"route", "gather_activations"}}}},
        Json{{"strategy", "cmbn"}, {"batch_per_tower", 4}, {"accumulate", 2}, {"statistics_per", "step"}},
        Json{{"strategy", {{"name", "frozen"}, {"base", "sync"}, {"from_step", 2}}}, {"weight_ema", 0.5}},
        Json{{"model",
              {{"name", "fcn"},
               {"backbone", {{"name", "resnet"}, {"width", 2}}},
               {"dropout", 0.5},
               {"auxiliary_weight", 0.4}}},
             {"task", {{"name", "shapes"}, {"size", {24, 24}}}}}}) {
    for (const auto exchange : {Exchange::shared_memory, Exchange::sockets}) {
      SCOPED_TRACE(keys.dump());
      const auto run = [&](const char* recompute) {
        Json all = keys;
        all["recompute"] = recompute;
        RunSpec spec = TrainingRuns::spec(all);
        spec.exchange = exchange;
        return runs.run(spec, 2);
      };
      const TrainedRun kept = run("none"), again = run("blocks");
      EXPECT_EQ(again.losses, kept.losses);
      expect_equal(again.tensors, kept.tensors);
      EXPECT_EQ(again.result.at("final"), kept.result.at("final"));
      EXPECT_EQ(again.result.at("communication"), kept.result.at("communication"));
    }
  }
}

TEST(RecomputationOf, PeakMemoryFalls) {
  TrainingRuns runs;
  const auto peak = [&](const char* recompute) {
    const TrainedRun trained =
        runs.run(TrainingRuns::spec(
                     {{"task", {{"name", "shapes"}, {"size", {64, 64}}, {"train", 16}, {"test", 2}}},
                      {"precision", "float32"},  // in float64 convolutions take more than the blocks keep
                      {"strategy", "per_tower"},
                      {"model", {{"name", "unet"}, {"base", 16}}},
                      {"towers", 1},
                      {"batch_per_tower", 16},
                      {"steps", 2},
                      {"recompute", recompute}}),
                 1);
    return trained.result.at("memory").at("peak_memory_bytes")[0].get<double>();
  };
  EXPECT_LT(peak("blocks"), 0.6 * peak("none"));
}

}  // namespace
}  // namespace bnlab::recomputation_test
