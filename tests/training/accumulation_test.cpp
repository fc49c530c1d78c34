// Steps of several passes (spec key accumulate): what they train is what one pass trains wherever samples do
// not depend on one another, and with per_tower what so many times as many towers train. Gradients meet once.
#include "harness/communicator/thread_ranks.hpp"
#include "harness/training/peak_memory.hpp"
#include "tests/training/replayed_training.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab::accumulation_test {
namespace {

constexpr double kRounding = 1e-11;

class Accumulation : public ::testing::Test {
 protected:
  TrainedRun run(const Json& keys, int ranks = 1) { return runs_.run(TrainingRuns::spec(keys), ranks); }

  static void expect_same(const TrainedRun& a, const TrainedRun& b) {
    ASSERT_EQ(a.losses.size(), b.losses.size());
    for (size_t i = 0; i < a.losses.size(); ++i)
      EXPECT_NEAR(a.losses[i], b.losses[i], kRounding) << "step " << i;
    expect_near(parameters_of(a), parameters_of(b), kRounding);
  }

  TrainingRuns runs_;
};

Json with(Json keys, const Json& more) {
  keys.update(more);
  return keys;
}

// Dropout draws for a sample of the global batch, whatever it is passed with.
const Json kDropout = {{"name", "fcn"},
                       {"backbone", {{"name", "resnet"}, {"width", 2}}},
                       {"output_stride", 8},
                       {"dropout", 0.5}};

// Towers are consecutive samples of the global batch, and so are the parts of a tower.
TEST_F(Accumulation, PerTowerIsTrainedAsSoManyTimesAsManyTowers) {
  const Json shapes = {{"name", "shapes"}, {"size", {24, 24}}, {"train", 24}, {"test", 11}};
  for (const Json& keys : {Json{{"strategy", "per_tower"}},
                           Json{{"strategy", "per_tower"}, {"model", kDropout}, {"task", shapes}},
                           Json{{"strategy", {{"name", "ghost"}, {"virtual_batch", 1}}}}}) {
    SCOPED_TRACE(keys.dump());
    const TrainedRun passes = run(with(keys, {{"towers", 2}, {"batch_per_tower", 4}, {"accumulate", 2}}));
    const TrainedRun towers = run(with(keys, {{"towers", 4}, {"batch_per_tower", 2}}));
    expect_same(passes, towers);
    EXPECT_NE(passes.losses, run(with(keys, {{"towers", 2}, {"batch_per_tower", 4}})).losses);
  }
}

// The mean of the loss is over the labels of the whole step, and each optimizer works on the whole gradient.
TEST_F(Accumulation, WhereSamplesAreIndependentItChangesNothing) {
  const auto task = [](const Json& loss) -> Json {
    return {{"name", "shapes"}, {"size", {16, 16}}, {"train", 24}, {"test", 11}, {"loss", loss}};
  };
  const Json weighted = {{"name", "cross_entropy"}, {"class_weights", {0.1, 1, 2, 4, 8}}};
  const Json clipped = {{"name", "adamw"}, {"lr", 0.01}, {"clip_gradient_norm", 0.05}};
  for (const Json& keys :
       {Json{{"task", task(weighted)}}, Json{{"task", task(weighted)}, {"loss_mean", "tower"}},
        Json{{"task", task("cross_entropy")}, {"optimizer", clipped}, {"weight_ema", 0.9}},
        Json{{"strategy", "filter_response_norm"},
             {"batch_per_tower", {8, 0, 4, 4}},
             {"loss_mean", "tower"}}}) {
    SCOPED_TRACE(keys.dump());
    const Json all = with({{"strategy", "group_norm"}, {"batch_per_tower", 4}}, keys);
    const TrainedRun plain = run(all);
    for (const int64_t passes : {2, 4}) expect_same(run(with(all, {{"accumulate", passes}})), plain);
    EXPECT_EQ(run(with(all, {{"accumulate", 4}})).result.at("final"), plain.result.at("final"));
  }
}

TEST_F(Accumulation, ThePlacementChangesNothing) {
  for (const char* strategy :
       {"per_tower", "sync", "shuffle", "every_tower", "batch_renorm", "cmbn", "precise", "weight_norm"}) {
    for (const char* per : {"micro_batch", "step"}) {
      SCOPED_TRACE(std::string(strategy) + ", " + per);
      const Json keys = {{"strategy", strategy},
                         {"batch_per_tower", {4, 2, 0, 6}},
                         {"accumulate", 2},
                         {"statistics_per", per},
                         {"populations", {"saved", "tower:3", "mean", "pooled", "precise", "batch"}},
                         {"precise_batches", 2}};
      const TrainedRun one = run(keys, 1), four = run(keys, 4);
      expect_same(one, four);
      expect_near(one.tensors, four.tensors, 1e-10);
      EXPECT_EQ(one.result.at("final"), four.result.at("final"));
    }
  }
}

TEST_F(Accumulation, GradientsMeetOnceAndStatisticsInEveryPass) {
  for (const char* exchange : {"shared_memory", "sockets"}) {  // gradients as one tensor, or by the Reducer
    SCOPED_TRACE(exchange);
    const auto with_passes = [&](int64_t passes) {
      RunSpec spec =
          TrainingRuns::spec({{"batch_per_tower", 4}, {"accumulate", passes}, {"strategy", "sync"}});
      spec.exchange = std::string(exchange) == "sockets" ? Exchange::sockets : Exchange::shared_memory;
      return runs_.run(spec, 2);
    };
    const TrainedRun once = with_passes(1), twice = with_passes(2), four_times = with_passes(4);
    const auto exchanges = [](const TrainedRun& run, const char* purpose) {
      return run.result.at("communication").at(purpose).at("collectives_per_step").get<double>();
    };
    EXPECT_EQ(exchanges(twice, "gradients"), exchanges(once, "gradients"));
    EXPECT_EQ(exchanges(four_times, "gradients"), exchanges(once, "gradients"));
    EXPECT_EQ(exchanges(four_times, "loss"), exchanges(once, "loss"));
    EXPECT_EQ(exchanges(twice, "statistics"), 2 * exchanges(once, "statistics"));
    EXPECT_EQ(exchanges(four_times, "statistics"), 4 * exchanges(once, "statistics"));
  }
}

TEST_F(Accumulation, OneWriteOfTheStatisticsPerStepIsThatOfTheWholeStep) {
  // Without a learning rate the first site sees the same values, whatever they are passed with.
  const Json still = {{"strategy", "per_tower"},
                      {"batch_per_tower", 4},
                      {"optimizer", {{"name", "sgd"}, {"lr", 1e-300}, {"weight_decay", 0}}}};
  const auto first_site = [&](const Json& more) {
    const TrainedRun trained = run(with(still, more));
    return at::stack({trained.tensors.at("encoder0.norm1.running_mean"),
                      trained.tensors.at("encoder0.norm1.running_var")});
  };
  const at::Tensor whole = first_site(Json::object());
  const auto distance = [&](const char* per) {
    const at::Tensor written = first_site({{"accumulate", 2}, {"statistics_per", per}});
    return (written - whole).abs().max().item<double>();
  };
  EXPECT_LT(distance("step"), kRounding);
  EXPECT_GT(distance("micro_batch"), 1e-4);
}

TEST_F(Accumulation, PeakMemoryIsThatOfAPass) {
  const auto peak = [&](int64_t passes) {
    const TrainedRun trained =
        run({{"task", {{"name", "shapes"}, {"size", {64, 64}}, {"train", 16}, {"test", 2}}},
             {"strategy", "per_tower"},
             {"towers", 1},
             {"batch_per_tower", 16},
             {"steps", 2},
             {"accumulate", passes}});
    return trained.result.at("memory").at("peak_memory_bytes")[0].get<double>();
  };
  EXPECT_LT(peak(8), 0.3 * peak(1));
}

TEST_F(Accumulation, ReplayedStepsLeaveWhatStepsByThemselvesLeave) {
  for (const char* strategy : {"per_tower", "sync", "cmbn"}) {
    for (const char* per : {"micro_batch", "step"}) {
      SCOPED_TRACE(std::string(strategy) + ", " + per);
      on_thread_ranks(2, at::kCPU, [&](World& world) {
        const RunSpec spec =
            spec_of(strategy, {{"batch_per_tower", 4}, {"accumulate", 2}, {"statistics_per", per}});
        Training by_itself(spec, world, nullptr), replayed(spec, world, done_again(world));
        for (int64_t step = 0; step < 12; ++step) {
          by_itself.step(step);
          replayed.step(step);
        }
        expect_equal(replayed.state(), by_itself.state());
        EXPECT_EQ(replayed.graphs().summary().at("replayed_steps"), 7);
      });
    }
  }
}

}  // namespace
}  // namespace bnlab::accumulation_test
