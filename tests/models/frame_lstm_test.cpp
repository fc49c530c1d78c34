// frame_lstm: counted, named, and its LSTM against the formula.
#include <gtest/gtest.h>

#include "tests/models/one_rank_network.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

Json model(const Json& changes = Json::object()) {
  Json all = {{"name", "frame_lstm"}, {"backbone", {{"name", "small_resnet"}, {"depth", 8}, {"width", 2}}}};
  all.update(changes);
  return all;
}

TEST(FrameLstm, HasTheCountedParameters) {
  const OneRankNetwork lstm({{"name", "frame_lstm"}}, 16);
  EXPECT_EQ(lstm.parameters(), 303392);
  EXPECT_EQ(lstm.parameters("lstm.") + lstm.parameters("fc."), 34320);
  const OneRankNetwork mean({{"name", "frame_lstm"}, {"temporal", "mean"}}, 16);
  EXPECT_EQ(mean.parameters(), 269072 + 16 * 65);
}

TEST(FrameLstm, PartsAreTheBackboneTheLstmAndTheLastLayer) {
  OneRankNetwork built(model(), 16);
  EXPECT_EQ(built.network().part_of("backbone.layer1.0.conv1.weight"), Part::backbone);
  EXPECT_EQ(built.network().part_of("lstm.weight_hh_l0"), Part::features);
  EXPECT_EQ(built.network().part_of("fc.bias"), Part::head);
}

// i, f, g, o = W x + b + U h + c, with sigmoids but tanh for g; m = f m + i g; h = o tanh(m).
TEST(FrameLstm, ItsLstmIsTheFormulaOverTheFramesInOrder) {
  constexpr int64_t kClips = 2, kFrames = 4, kHidden = 3;
  OneRankNetwork built(model({{"hidden", kHidden}}), 5);
  const at::NoGradGuard no_grad;
  const auto weights = built.network().named_parameters();
  const at::Tensor frames = at::randn({kClips, kFrames, 8}, at::kDouble);
  at::Tensor h = at::zeros({kClips, kHidden}, at::kDouble), m = h;
  for (int64_t t = 0; t < kFrames; ++t) {
    const at::Tensor gates =
        at::linear(frames.select(1, t), weights["lstm.weight_ih_l0"], weights["lstm.bias_ih_l0"]) +
        at::linear(h, weights["lstm.weight_hh_l0"], weights["lstm.bias_hh_l0"]);
    const auto gate = [&](int64_t place) { return gates.narrow(1, place * kHidden, kHidden); };
    m = gate(1).sigmoid() * m + gate(0).sigmoid() * gate(2).tanh();
    h = gate(3).sigmoid() * m.tanh();
  }
  const at::Tensor expected = at::linear(h, weights["fc.weight"], weights["fc.bias"]);
  const Batch batch{frames.flatten(0, 1), {}, Towers({kClips}, 1, 0), kFrames};
  Pass pass;
  pass.towers = batch.towers;
  pass.rows_per_sample = kFrames;
  const at::Tensor logits = built.network().head({batch.images}, pass).logits;
  EXPECT_LT((logits - expected).abs().max().item<double>(), 1e-12);
}

TEST(FrameLstm, OnlyTheMeanIsBlindToTheOrderOfFrames) {
  for (const char* temporal : {"lstm", "mean"}) {
    OneRankNetwork built(model({{"temporal", temporal}}), 5);
    at::manual_seed(1);
    const at::Tensor clip = at::randn({6, 3, 16, 16}, at::kDouble);
    const auto logits = [&](const at::Tensor& frames) {
      return built.forward(frames, Mode::evaluate_saved, 0, 6).logits;
    };
    const double difference = (logits(clip) - logits(clip.flip({0}))).abs().max().item<double>();
    EXPECT_EQ(difference < 1e-10, std::string(temporal) == "mean") << temporal << " " << difference;
  }
}

RunSpec spec_of(const Json& changes) {
  Json keys = {{"task", {{"name", "motion"}, {"frames", 3}, {"train", 24}, {"test", 11}}},
               {"model", model()},
               {"strategy", "shuffle"},
               {"steps", 2}};
  keys.update(changes);
  return TrainingRuns::spec(keys);
}

TEST(FrameLstm, ARankWithoutClipsChangesNothing) {
  TrainingRuns runs;
  const RunSpec spec = spec_of({{"batch_per_tower", {3, 0, 2, 3}}});
  const TrainedRun one = runs.run(spec, 1), four = runs.run(spec, 4);
  expect_near(four.tensors, one.tensors, 1e-10);
  EXPECT_EQ(four.result.at("final"), one.result.at("final"));
}

TEST(FrameLstm, TrainsInBfloat16) {
  TrainingRuns runs;
  const TrainedRun half = runs.run(spec_of({{"precision", "bfloat16"}}), 2);
  const TrainedRun whole = runs.run(spec_of({{"precision", "float32"}}), 2);
  ASSERT_EQ(half.losses.size(), 2u);
  EXPECT_NEAR(half.losses[0], whole.losses[0], 0.02);
  EXPECT_NE(half.losses[0], whole.losses[0]);
}

}  // namespace
}  // namespace bnlab
