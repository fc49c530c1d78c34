// Placement invariance: one spec as 4x1, 2x2 and 1x4 (ranks x towers per rank) gives the same losses,
// weights, running statistics and metrics, for every registered strategy and the options of training.
#include <cmath>

#include "harness/components/registry.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab::placement_test {
namespace {

class Placement : public ::testing::TestWithParam<std::string> {
 protected:
  // Sums are taken in another order, and five steps with momentum let the differences grow.
  static void expect_same(const TrainedRun& a, const TrainedRun& b) {
    ASSERT_EQ(a.losses.size(), 5u);
    ASSERT_EQ(b.losses.size(), 5u);
    for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(a.losses[i], b.losses[i], 1e-10) << "step " << i;
    expect_near(a.tensors, b.tensors, 1e-10);
    ASSERT_EQ(a.pairs.empty(), b.pairs.empty());
    if (!a.pairs.empty()) expect_near(a.pairs, b.pairs, 1e-10);
    EXPECT_EQ(a.result.at("final"), b.result.at("final"));
  }

  // Compares every placement with one rank and returns the run of the one rank.
  TrainedRun expect_invariant(const RunSpec& spec, const std::vector<int>& ranks = {2, 4}) {
    const TrainedRun one = runs_.run(spec, 1);
    for (const int r : ranks) {
      SCOPED_TRACE(std::to_string(r) + " ranks");
      expect_same(one, runs_.run(spec, r));
    }
    return one;
  }

  TrainingRuns runs_;
};

// The record of this spec has the metrics of every population.
RunSpec spec_of(const Json& strategy) {
  return TrainingRuns::spec({{"strategy", strategy},
                             {"populations", {"saved", "tower:3", "mean", "pooled", "precise", "batch"}},
                             {"precise_batches", 2}});
}

TEST_P(Placement, ChangesNothing) {
  const TrainedRun one = expect_invariant(spec_of(GetParam()));
  EXPECT_GT(std::abs(one.losses.front() - one.losses.back()), 1e-3) << "nothing was learned";
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Placement, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) { return info.param; });

using PlacementOfOptions = Placement;

TEST_F(PlacementOfOptions, VariantsThatExchangeSomethingElseAreInvariantToo) {
  for (const char* variant :
       {R"({"name": "sync", "group_size": 2, "route": "all_reduce"})",
        R"({"name": "sync", "gradient": "stopped", "route": "reduce_broadcast"})",
        R"({"name": "sync", "gradient": "own_tower", "route": "host"})",
        R"({"name": "sync", "variance": "averaged", "route": "gather_activations"})",
        R"({"name": "sync", "moments": "e_x2"})", R"({"name": "averaged", "merge": "pooled"})",
        R"({"name": "sync", "weights": "equal", "route": "all_reduce"})",
        R"({"name": "sync", "normalise": "unbiased", "weights": "equal", "moments": "e_x2"})",
        R"({"name": "every_tower", "running": "zero_debias", "running_variance": "biased"})",
        R"({"name": "per_tower", "saved_tower": 2, "momentum": null})",
        R"({"name": "batch_renorm", "scope": "pooled", "r_max": 1.5, "d_max": 0.5})",
        R"({"name": "weight_norm", "mean_only_bn": true, "scope": "pooled"})",
        R"({"name": "mabn", "window": 2, "warmup_steps": 0, "renorm_from_step": 1})",
        R"({"name": "norm_batch", "samples": 1})", R"({"name": "norm_batch", "samples": 8})",
        R"({"name": "weight_standardisation", "base": {"name": "sync", "route": "all_reduce"}})",
        R"({"name": "frozen", "base": "shuffle", "from_fraction": 0.4})",
        R"({"name": "precise", "base": {"name": "ghost", "virtual_batch": 1}, "batches": 2})"}) {
    SCOPED_TRACE(variant);
    expect_invariant(spec_of(Json::parse(variant)));
  }
}

TEST_F(PlacementOfOptions, TheSameRunTwiceIsBitIdentical) {
  for (const char* strategy : {"per_tower", "sync", "shuffle", "weight_norm"}) {
    SCOPED_TRACE(strategy);
    const RunSpec s = TrainingRuns::spec({{"strategy", strategy}});
    const TrainedRun first = runs_.run(s, 2), second = runs_.run(s, 2);
    EXPECT_EQ(first.losses, second.losses);
    expect_equal(first.tensors, second.tensors);
  }
}

TEST_F(PlacementOfOptions, UnevenAndEmptyTowersAreInvariantToo) {
  for (const char* strategy : {"sync", "shuffle", "every_tower", "weight_norm"}) {
    SCOPED_TRACE(strategy);
    expect_invariant(TrainingRuns::spec({{"strategy", strategy}, {"batch_per_tower", {3, 0, 2, 3}}}));
  }
}

TEST_F(PlacementOfOptions, TheMeanOverTowersOfTheLossIsInvariantToo) {
  expect_invariant(TrainingRuns::spec({{"strategy", "per_tower"}, {"loss_mean", "tower"}}), {2});
}

TEST_F(PlacementOfOptions, SortedShardsAreInvariantTooAndAnotherTraining) {
  const auto sharded = [](const char* shards) {
    return TrainingRuns::spec({{"strategy", "per_tower"},
                               {"shards", shards},
                               {"populations", {"saved", "precise"}},
                               {"precise_batches", 2}});
  };
  expect_invariant(sharded("sorted:class"));
  EXPECT_NE(runs_.run(sharded("sorted:class"), 1).losses, runs_.run(sharded("iid"), 1).losses);
  EXPECT_NE(runs_.run(sharded("sorted:class"), 1).losses, runs_.run(sharded("sorted:brightness"), 1).losses);
}

TEST_F(PlacementOfOptions, LossesAreInvariantTooAndAnotherTraining) {
  const auto with = [](const Json& loss, const char* mean) {
    return TrainingRuns::spec(
        {{"task", {{"name", "shapes"}, {"size", {16, 16}}, {"train", 24}, {"test", 11}, {"loss", loss}}},
         {"loss_mean", mean}});
  };
  const Json hard = {{"name", "ohem"}, {"threshold", 0.2}, {"min_kept", 16}};
  const Json smoothed = {{"name", "cross_entropy"}, {"label_smoothing", 0.1}};
  const Json weighted = {{"name", "cross_entropy"}, {"class_weights", {0.2, 1, 1.5, 2, 3}}};
  const Json dice = {{"name", "dice"}}, of_towers = {{"name", "dice"}, {"over", "tower"}};
  const Json both = {{"name", "cross_entropy_dice"}, {"over", "batch"}, {"dice_weight", 0.5}};
  for (const Json& loss : {hard, smoothed, weighted, dice, of_towers, both}) {
    SCOPED_TRACE(loss);
    for (const char* mean : {"batch", "tower"}) expect_invariant(with(loss, mean), {2});
    EXPECT_NE(runs_.run(with(loss, "batch"), 1).losses, runs_.run(with("cross_entropy", "batch"), 1).losses);
  }
}

TEST_F(PlacementOfOptions, ADiceOfTheWholeBatchIsInvariantToo) {
  for (const Json& per_tower : {Json(2), Json({3, 0, 2, 3})}) {
    expect_invariant(TrainingRuns::spec({{"task",
                                          {{"name", "shapes"},
                                           {"size", {16, 16}},
                                           {"train", 24},
                                           {"test", 11},
                                           {"loss", {{"name", "dice"}, {"over", "batch"}}}}},
                                         {"batch_per_tower", per_tower}}));
  }
}

TEST_F(PlacementOfOptions, AveragedWeightsAreInvariantTooAndLeaveTheTrainingAlone) {
  const RunSpec plain = TrainingRuns::spec({{"populations", {"saved"}}});
  const RunSpec averaged = TrainingRuns::spec({{"populations", {"saved"}}, {"weight_ema", 0.5}});
  expect_invariant(averaged, {2});
  const TrainedRun with = runs_.run(averaged, 2), without = runs_.run(plain, 2);
  EXPECT_EQ(with.losses, without.losses);
  expect_equal(with.tensors, without.tensors);
  EXPECT_TRUE(with.result.at("final").contains("ema"));
  EXPECT_NE(with.result.at("final").at("ema"), with.result.at("final").at("saved"));
  EXPECT_FALSE(without.result.at("final").contains("ema"));
}

// The norm of all gradients is above this limit in every step.
constexpr double kClip = 0.05;

TEST_F(PlacementOfOptions, OptimizersSchedulesAndClippingAreInvariantToo) {
  const auto with = [](const Json& optimizer) { return TrainingRuns::spec({{"optimizer", optimizer}}); };
  const Json adamw = {{"name", "adamw"}, {"lr", 0.01}, {"schedule", "cosine"}, {"norm_lr_multiplier", 0.5}};
  const Json sgd = {{"name", "sgd"}, {"schedule", "step"}, {"milestones", {0.5}}};
  for (const Json& optimizer : {adamw, sgd}) {
    Json clipped = optimizer;
    clipped["clip_gradient_norm"] = kClip;
    SCOPED_TRACE(clipped);
    expect_invariant(with(clipped));
    EXPECT_NE(runs_.run(with(clipped), 1).losses, runs_.run(with(optimizer), 1).losses);
  }
}

TEST_F(PlacementOfOptions, EveryGradientRouteIsTheSameTraining) {
  const auto by = [](const char* route) {
    return TrainingRuns::spec(
        {{"gradient_route", route}, {"optimizer", {{"name", "sgd"}, {"clip_gradient_norm", kClip}}}});
  };
  const TrainedRun reducer = runs_.run(by("reducer"), 2);
  for (const char* route : {"rank0", "host"}) {
    SCOPED_TRACE(route);
    expect_same(reducer, runs_.run(by(route), 2));
  }
}

}  // namespace
}  // namespace bnlab::placement_test
