// The module BatchNorm on one rank: what it computes, its options.
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <future>
#include <sstream>

#include "nets.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

TEST(BatchNorm, WithTowersIsBatchNormOfTheWholeBatchOrOfEachTower) {
  for (const int64_t towers : {1, 2, 3}) {  // 8 rows in 3 towers: 3, 3 and 2
    BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy("sync").towers_per_rank(towers));
    nn::BatchNorm2d plain = plain_norm();
    for (uint64_t step = 0; step < 3; ++step) {
      const Trained ours = train(layer, batch(8, step), batch(8, 99));
      const Trained theirs = train(plain, batch(8, step), batch(8, 99));
      EXPECT_LT(difference(ours.y, theirs.y), 1e-12);
      EXPECT_LT(difference(ours.dx, theirs.dx), 1e-12);
      EXPECT_LT(difference(ours.dweight, theirs.dweight), 1e-11);
    }
    EXPECT_LT(difference(layer->running_var, plain->running_var), 1e-12);
  }
  BatchNorm parts = norm_of(BatchNormOptions(kChannels).towers_per_rank(2));
  const at::Tensor x = batch(8, 0), y = parts->forward(x);
  EXPECT_LT(difference(y.narrow(0, 4, 4), plain_norm()->forward(x.narrow(0, 4, 4))), 1e-12);
  EXPECT_GT(difference(y, plain_norm()->forward(x)), 1e-3);
}

TEST(BatchNorm, TakesTwoToFiveDimensionsInBothMemoryFormats) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{6, 3}, {6, 3, 5}, {6, 3, 5, 4}, {6, 3, 2, 3, 4}}) {
    const at::Tensor x = at::randn(shape, at::kDouble);
    const at::Tensor expected = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    BatchNorm layer = norm_of(BatchNormOptions(3));
    EXPECT_LT(difference(layer->forward(x), expected), 1e-12);
    if (shape.size() > 3) {
      const auto format =
          shape.size() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::ChannelsLast3d;
      const at::Tensor y = layer->forward(x.contiguous(format));
      EXPECT_LT(difference(y, expected), 1e-12);
      EXPECT_TRUE(y.is_contiguous(format));
    }
  }
}

TEST(BatchNorm, FusesResidualAndReluForwardAndBackward) {
  BatchNorm fused = norm_of(BatchNormOptions(kChannels).relu(true));
  nn::BatchNorm2d plain = plain_norm();
  Trained results[2];
  at::Tensor dresidual[2];
  for (const int i : {0, 1}) {
    const at::Tensor x = batch(6, 0).requires_grad_(), residual = batch(6, 1).requires_grad_();
    const at::Tensor y = i == 0 ? fused(x, residual) : (plain(x) + residual).relu();
    y.backward(batch(6, 2));
    results[i] = {y.detach(), x.grad(), i == 0 ? fused->weight.grad() : plain->weight.grad()};
    dresidual[i] = residual.grad();
  }
  EXPECT_LT(difference(results[0].y, results[1].y), 1e-12);
  EXPECT_LT(difference(results[0].dx, results[1].dx), 1e-12);
  EXPECT_LT(difference(results[0].dweight, results[1].dweight), 1e-11);
  EXPECT_EQ(difference(dresidual[0], dresidual[1]), 0);
  nn::Sequential net(BatchNorm(BatchNormOptions(kChannels).relu(true)));  // with its default argument
  EXPECT_GE(net->forward(batch(6, 0).to(at::kFloat)).min().item<float>(), 0);
}

TEST(BatchNorm, InHalfPrecisionKeepsItsWeightsAndStatisticsInFloat32) {
  nn::Sequential net(nn::Conv2d(3, 3, 1), BatchNorm(3));
  net->to(at::kBFloat16);
  EXPECT_EQ(net->named_buffers()["1.running_var"].scalar_type(), at::kFloat);
  EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].scalar_type(), at::kLong);
  const at::Tensor y = net->forward(batch(4, 0).to(at::kBFloat16));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(y.to(at::kFloat).mean().abs().item<float>(), 0.02);

  nn::Sequential cast(nn::Conv2d(3, 3, 1), BatchNorm(3));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor z = cast->forward(batch(4, 0).to(at::kFloat));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  EXPECT_EQ(z.scalar_type(), at::kBFloat16);
  z.to(at::kFloat).sum().backward();
  EXPECT_TRUE(cast->named_parameters()["1.weight"].grad().defined());
}

TEST(BatchNorm, WithoutTrackedStatisticsUsesTheBatchInEvaluationToo) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).track_running_stats(false));
  EXPECT_EQ(layer->buffers().size(), 0U);
  const at::Tensor y = layer->forward(batch(6, 0));
  layer->eval();
  EXPECT_LT(difference(layer->forward(batch(6, 0)), y), 1e-12);
  EXPECT_LT(difference(y, plain_norm()->forward(batch(6, 0))), 1e-12);
}

TEST(BatchNorm, CountsEveryForwardPassOrTheFirstBeforeABackwardPass) {
  const auto after_two_passes = [](Counting counting) {
    BatchNorm layer = norm_of(BatchNormOptions(kChannels).counting(counting));
    at::Tensor made;
    {
      const at::NoGradGuard none;
      made = layer->forward(batch(6, 5));  // a pass without gradients
    }
    (layer->forward(batch(6, 0)).sum() + layer->forward(batch(6, 1)).sum()).backward();
    EXPECT_LT(difference(made, plain_norm()->forward(batch(6, 5))), 1e-12);
    const at::Tensor tracked = layer->num_batches_tracked.clone();
    layer->forward(batch(6, 2));  // after the backward pass one counts again
    EXPECT_EQ((layer->num_batches_tracked - tracked).item<int64_t>(), 1);
    return tracked.item<int64_t>();
  };
  EXPECT_EQ(after_two_passes(Counting::every_forward), 3);  // as BatchNorm2d
  EXPECT_EQ(after_two_passes(Counting::first_before_backward), 1);
}

TEST(BatchNorm, GoesOnCountingBehindAPassThatWasDropped) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).counting(Counting::first_before_backward));
  layer->forward(batch(6, 0));  // of a step that is left out, as one that is not finite
  layer->forward(batch(6, 1)).sum().backward();
  layer->forward(batch(6, 2)).sum().backward();
  EXPECT_EQ(layer->num_batches_tracked.item<int64_t>(), 2);
  layer->forward(batch(6, 3));
  layer->num_batches_tracked.fill_(7);  // written from outside, as by a checkpoint
  layer->forward(batch(6, 4));
  EXPECT_EQ(layer->num_batches_tracked.item<int64_t>(), 8);
}

TEST(BatchNorm, CountsTheFirstPassWhereNothingBeforeItLearns) {
  BatchNorm layer =
      norm_of(BatchNormOptions(kChannels).affine(false).counting(Counting::first_before_backward));
  for (int step = 1; step < 3; ++step) {
    (layer->forward(batch(6, 0)).relu_().sum() + layer->forward(batch(6, 1)).relu_().sum()).backward();
    EXPECT_EQ(layer->num_batches_tracked.item<int64_t>(), step);
  }
}

TEST(BatchNorm, ThatIsNotTrackedRefusesWhatATrackedOneWould) {
  for (const bool training : {true, false}) {
    for (const char* strategy : {"per_tower", "sync"}) {
      BatchNorm layer(BatchNormOptions(3).track_running_stats(false).strategy(strategy));
      layer->train(training);
      EXPECT_SAYS(layer->forward(at::rand({1, 3})), "more than 1 value per channel");
    }
  }
  BatchNorm towers(BatchNormOptions(3).track_running_stats(false).towers_per_rank(2));
  towers->eval();
  EXPECT_EQ(towers->forward(at::rand({3, 3})).size(0), 3) << "an evaluation takes all at once";
  BatchNorm ghost(BatchNormOptions(3).track_running_stats(false).strategy("ghost(virtual_batch=4)"));
  EXPECT_FALSE(refusal([&] { ghost->forward(at::rand({5, 3})); }).empty());
}

TEST(BatchNorm, IsMadeAndEvaluatesInInferenceMode) {
  const c10::InferenceMode guard;
  BatchNorm layer(kChannels);
  layer->eval();
  const at::Tensor x = batch(4, 0).to(at::kFloat);
  EXPECT_LT(difference(layer->forward(x), x), 1e-3);
}

TEST(BatchNorm, ResetsTheParametersThatOnlyItsStrategyHas) {
  BatchNorm layer(BatchNormOptions(kChannels).strategy("dynamic_tanh"));
  const at::Tensor alpha = layer->named_parameters()["alpha"];
  const at::Tensor begun = alpha.detach().clone();
  {
    const at::NoGradGuard none;
    alpha.fill_(9);
    layer->weight.fill_(9);
  }
  layer->reset_parameters();
  EXPECT_EQ(difference(alpha, begun), 0);
  EXPECT_EQ(difference(layer->weight, at::ones({kChannels})), 0);
}

TEST(BatchNorm, LayersOfOneProcessHaveNamesOfTheirOwn) {
  EXPECT_NE(BatchNorm(3)->options.name(), BatchNorm(3)->options.name());
}

TEST(BatchNorm, SaysWhatItIs) {
  std::stringstream text;
  text << BatchNorm(BatchNormOptions(8).momentum(std::nullopt).strategy("sync").relu(true));
  EXPECT_EQ(text.str(),
            "bnlab::BatchNorm(8, eps=1e-05, momentum=None, affine=true, track_running_stats=true, "
            "strategy=sync, ranks=1, relu=true)");
}

TEST(BatchNorm, GivesItsOptionsToTheStrategyUnlessThatHasThem) {
  const at::Tensor x = batch(6, 0) * 1e-3;
  const auto normalised = [&](const BatchNormOptions& options) {
    return norm_of(options)->forward(x).detach();
  };
  const at::Tensor wide = at::batch_norm(x, {}, {}, {}, {}, true, 0.1, 0.5, false);
  EXPECT_LT(difference(normalised(BatchNormOptions(3).eps(0.5)), wide), 1e-12);
  EXPECT_LT(
      difference(normalised(BatchNormOptions(3).eps(0.1).strategy(R"({"name": "sync", "eps": 0.5})")), wide),
      1e-12);
  EXPECT_LT(difference(normalised(BatchNormOptions(3).eps(0.5).strategy("precise")), wide), 1e-12);
  EXPECT_FALSE(norm_of(BatchNormOptions(3).affine(false))->weight.defined());

  EXPECT_EQ(BatchNorm(BatchNormOptions(3).strategy("sync(eps=0.5)"))->options.eps(), 0.5);
  const BatchNorm told(BatchNormOptions(3).strategy(R"({"name": "sync", "eps": 0.5, "momentum": null})"));
  EXPECT_EQ(told->options.eps(), 0.5);
  EXPECT_EQ(told->options.momentum(), std::nullopt);
  nn::Sequential net(told);
  convert_back(*net);
  EXPECT_EQ(net->named_children()["0"]->as<nn::BatchNorm2dImpl>()->options.eps(), 0.5);
}

// Full limits at once, since the length of the run is not known; as many samples as a test's towers have.
BatchNormOptions options_of(const std::string& strategy) {
  return BatchNormOptions(4).strategy(strategy == "batch_renorm"
                                          ? R"({"name": "batch_renorm", "schedule": null})"
                                      : strategy == "group_norm" ? R"({"name": "group_norm", "groups": 2})"
                                      : strategy == "norm_batch" ? R"({"name": "norm_batch", "samples": 2})"
                                                                 : strategy);
}

// Those of which a layer stands alone, as a message lists them.
std::vector<std::string> strategies() {
  const std::string known = refusal([] { BatchNorm(BatchNormOptions(4).strategy("?")); });
  std::istringstream names(known.substr(known.find("known: ") + 7));
  std::vector<std::string> alone;
  for (std::string name; std::getline(names >> std::ws, name, ',');)
    if (refusal([&] { BatchNorm(options_of(name)); }).empty()) alone.push_back(name);
  return alone;
}

TEST(BatchNorm, KnowsTheStrategiesThatTheseTestsAskOf) {
  const std::vector<std::string> names = strategies();
  for (const char* name : {"sync", "per_tower", "dynamic_tanh", "shuffle", "frozen", "group_norm"})
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
}

at::Tensor wide_batch(int64_t rows, uint64_t seed) {
  const at::Tensor x = batch(rows, seed);
  return at::cat({x, x.narrow(1, 0, 1).square() * 0.1}, 1);
}

TEST(BatchNorm, IsEvaluatedBySeveralThreadsAtOnce) {
  for (const std::string& strategy : strategies()) {
    for (const bool relu : {false, true}) {
      for (const int64_t towers : {1, 2}) {
        for (const bool tracks : {true, false}) {
          BatchNorm layer =
              norm_of(options_of(strategy).relu(relu).towers_per_rank(towers).track_running_stats(tracks));
          layer->forward(wide_batch(4, 0));
          layer->eval();
          const bool adds = strategy != "shuffle";
          const auto answer = [&](uint64_t seed) {
            const at::NoGradGuard none;
            const at::Tensor x = wide_batch(4, seed);
            return adds ? layer->forward(x, wide_batch(4, seed + 1)) : layer->forward(x);
          };
          std::vector<at::Tensor> expected;
          for (uint64_t thread = 0; thread < 4; ++thread) expected.push_back(answer(10 * thread));
          layer->options.eps(layer->options.eps() * 1.000001);  // which the first of them takes up
          if (tracks && layer->running_mean.defined()) layer->running_mean = layer->running_mean.clone();
          std::vector<std::future<double>> threads;
          for (uint64_t thread = 0; thread < 4; ++thread) {
            threads.push_back(std::async(std::launch::async, [&, thread] {
              double most = 0;
              for (int pass = 0; pass < 20; ++pass)
                most = std::max(most, difference(answer(10 * thread), expected[thread]));
              return most;
            }));
          }
          for (auto& thread : threads)
            EXPECT_LT(thread.get(), 1e-4) << strategy << ", relu " << relu << ", " << towers << " towers";
        }
      }
    }
  }
}

class MovedBatchNorm : public ::testing::TestWithParam<std::pair<at::ScalarType, at::DeviceType>> {};

// Before the first pass, between two and back again; forward, backward and evaluation.
TEST_P(MovedBatchNorm, OfEveryStrategyTrainsWhereverItIs) {
  const auto [type, device] = GetParam();
  if (device != at::kCPU && !torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  for (const std::string& strategy : strategies()) {
    for (const bool relu : {false, true}) {
      BatchNorm layer(options_of(strategy).relu(relu)), exact = norm_of(options_of(strategy).relu(relu));
      const auto passes = [&](at::Device where, at::ScalarType as, double tolerance) {
        layer->to(where, as);
        const at::Tensor x = wide_batch(4, 1), mine = x.to(where, as).requires_grad_();
        const at::Tensor y = layer->forward(mine), expected = exact->forward(x);
        EXPECT_LT(difference(y.to(at::kCPU, at::kDouble), expected), tolerance) << strategy << " " << as;
        y.sum().backward();
        EXPECT_EQ(mine.grad().scalar_type(), as);
        layer->eval();
        exact->eval();
        EXPECT_LT(difference(layer->forward(mine).to(at::kCPU, at::kDouble), exact->forward(x)), tolerance)
            << strategy;
        layer->train();
        exact->train();
      };
      passes(device, type, type == at::kDouble ? 1e-10 : 0.1);
      passes(at::kCPU, at::kFloat, 0.1);
      passes(device, type, 0.1);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ToDouble, MovedBatchNorm, ::testing::Values(std::pair(at::kDouble, at::kCPU)));
INSTANTIATE_TEST_SUITE_P(ToBfloat16, MovedBatchNorm, ::testing::Values(std::pair(at::kBFloat16, at::kCPU)));
INSTANTIATE_TEST_SUITE_P(ToFloat16, MovedBatchNorm, ::testing::Values(std::pair(at::kHalf, at::kCPU)));
INSTANTIATE_TEST_SUITE_P(CudaDouble, MovedBatchNorm, ::testing::Values(std::pair(at::kDouble, at::kCUDA)));
INSTANTIATE_TEST_SUITE_P(CudaBfloat16, MovedBatchNorm,
                         ::testing::Values(std::pair(at::kBFloat16, at::kCUDA)));

TEST(BatchNorm, TakesOptionsOfEveryKindThatAreWrittenLater) {
  BatchNorm layer = norm_of(kChannels),
            fresh = norm_of(BatchNormOptions(kChannels).strategy("sync").relu(true).towers_per_rank(2));
  layer->forward(batch(6, 0));
  fresh->forward(batch(6, 0));
  fresh->running_mean = layer->running_mean.clone();
  fresh->running_var = layer->running_var.clone();
  const at::Tensor weight = layer->weight;
  layer->options.strategy("sync").relu(true).towers_per_rank(2);
  for (uint64_t step = 1; step < 3; ++step)
    EXPECT_LT(difference(layer->forward(batch(6, step)), fresh->forward(batch(6, step))), 1e-12);
  EXPECT_LT(difference(layer->running_var, fresh->running_var), 1e-12);
  EXPECT_TRUE(layer->weight.is_same(weight));
  layer->options.counting(Counting::first_before_backward);
  layer->forward(batch(6, 4));
  layer->forward(batch(6, 5));
  EXPECT_EQ(layer->num_batches_tracked.item<int64_t>(), 4);
  layer->options.strategy("dynamic_tanh");
  EXPECT_SAYS(layer->forward(batch(6, 0)), "would give it other tensors; set_options does that");
}

TEST(BatchNorm, SetOptionsReturnsTheParametersThatAreNew) {
  BatchNorm layer = norm_of(kChannels);
  const at::Tensor weight = layer->weight;
  const std::vector<at::Tensor> added =
      layer->set_options(BatchNormOptions(kChannels).strategy("dynamic_tanh"));
  ASSERT_EQ(added.size(), 1U);
  EXPECT_TRUE(added[0].is_same(layer->named_parameters()["alpha"]));
  EXPECT_EQ(added[0].scalar_type(), at::kDouble);
  EXPECT_TRUE(added[0].requires_grad() && layer->weight.is_same(weight));
  EXPECT_FALSE(layer->running_mean.defined());
  layer->forward(batch(6, 0)).sum().backward();
  EXPECT_TRUE(added[0].grad().defined());
  EXPECT_TRUE(layer->set_options(BatchNormOptions(kChannels).strategy("dynamic_tanh").relu(true)).empty());
  EXPECT_TRUE(added[0].is_same(layer->named_parameters()["alpha"]));
  EXPECT_SAYS(layer->set_options(BatchNormOptions(4)), "num_features: its tensors have 3, got 4");
}

TEST(BatchNorm, IsFrozenForOptimizersThatRemember) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(R"({"name": "frozen", "from_step": 1})"));
  torch::optim::SGD sgd(layer->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
  at::Tensor frozen;
  for (uint64_t s = 0; s < 3; ++s) {
    sgd.zero_grad(/*set_to_none=*/false);
    layer->forward(batch(6, s).requires_grad_()).square().sum().backward();
    sgd.step();
    if (s == 0) frozen = layer->weight.detach().clone();
  }
  EXPECT_EQ(difference(layer->weight, frozen), 0);
}

TEST(BatchNorm, KeepsAnAssignedWeightFrozenAsTheStrategyWants) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(R"({"name": "frozen", "from_step": 1})"));
  layer->forward(batch(6, 0));
  layer->forward(batch(6, 1));
  EXPECT_FALSE(layer->weight.requires_grad());
  layer->weight = at::ones({kChannels}, at::kDouble).requires_grad_();
  layer->forward(batch(6, 2));
  EXPECT_FALSE(layer->weight.requires_grad());
  layer->set_options(BatchNormOptions(kChannels).strategy("sync"));
  EXPECT_TRUE(layer->weight.requires_grad());
}

TEST(BatchNorm, SaysWhatDoesNotFit) {
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).strategy("synk")), "did you mean \"sync\"");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).strategy("{\"name\"")), "JSON");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(0)), "at least 1 feature");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).towers_per_rank(0)), "1 tower");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).strategy("weight_norm")), "weights of convolutions");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).strategy("mabn")), "moments of past steps");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).strategy(R"({"name": "frozen", "base": "mabn"})")),
              "moments of past");
  EXPECT_SAYS(BatchNorm(4)->forward(at::zeros({2, 3, 4, 4})), "expected an input [rows, 4, ...]");
  EXPECT_SAYS(BatchNorm(3)->forward(at::zeros({2, 3, 4, 4}), at::zeros({2, 3, 4, 5})),
              "residual like the input");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).strategy("shuffle"))
                  ->forward(at::rand({4, 3, 2, 2}), at::rand({4, 3, 2, 2})),
              "add it behind the layer");
  EXPECT_SAYS(
      BatchNorm(BatchNormOptions(3).strategy(R"({"name": "sync", "group_size": 2})").towers_per_rank(3))
          ->forward(at::rand({6, 3, 2, 2})),
      "divisor of the 3 towers");
  EXPECT_SAYS(BatchNorm(3)->forward(at::rand({1, 3})), "more than 1 value per channel");
}

}  // namespace
}  // namespace bnlab
