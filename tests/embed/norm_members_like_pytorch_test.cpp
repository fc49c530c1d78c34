// Rows of harness/embed/like_pytorch.md: what BatchNorm is constructed with, and what is written to its
// options and tensors later.
#include "like_pytorch.hpp"

namespace bnlab {
namespace {

// What is constructed

TEST(LikeBatchNorm2d, BeginsWithTheSameTensors) {
  Both both(Options(5));
  EXPECT_EQ(difference(both.ours->weight, at::ones({5})), 0);
  EXPECT_EQ(difference(both.ours->bias, at::zeros({5})), 0);
  EXPECT_EQ(difference(both.ours->running_mean, at::zeros({5})), 0);
  EXPECT_EQ(difference(both.ours->running_var, at::ones({5})), 0);
  EXPECT_EQ(both.ours->num_batches_tracked.dim(), 0);
  EXPECT_EQ(both.ours->num_batches_tracked.scalar_type(), at::kLong);
}

TEST(LikeBatchNorm2d, WithoutAffineAndTrackingHasNoTensors) {
  const BatchNorm layer(BatchNormOptions(5).affine(false).track_running_stats(false));
  EXPECT_TRUE(layer->parameters().empty());
  EXPECT_TRUE(layer->buffers().empty());
  EXPECT_FALSE(layer->weight.defined() || layer->bias.defined() || layer->running_mean.defined() ||
               layer->running_var.defined() || layer->num_batches_tracked.defined());
}

TEST(LikeBatchNorm2d, TrainsAndEvaluates) {
  Both both;
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, WithoutAffineTrainsAndEvaluates) {
  Both both(Options(kChannels).affine(false));
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, WithoutTrackingUsesTheBatchInBothModes) {
  Both both(Options(kChannels).track_running_stats(false));
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, TakesEps) {
  Both both(Options(kChannels).eps(0.5));
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, TakesMomentum) {
  Both both(Options(kChannels).momentum(0.7));
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, WithoutMomentumAveragesAllSteps) {
  Both both(Options(kChannels).momentum(std::nullopt));
  EXPECT_SAME(both.train(5));
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, WithMomentumZeroKeepsItsStatisticsAndCounts) {
  Both both(Options(kChannels).momentum(0));
  EXPECT_SAME(both.train());
  EXPECT_EQ(difference(both.ours->running_mean, at::zeros({kChannels})), 0);
  EXPECT_EQ(both.ours->num_batches_tracked.item<int64_t>(), 3);
}

TEST(LikeBatchNorm2d, WithMomentumOneHasTheLastBatchs) {
  Both both(Options(kChannels).momentum(1));
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, RefusesMomentumOutsideZeroToOne) {
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).momentum(1.5)),
              "momentum: expected a number in [0, 1] or null, got 1.5");
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).momentum(-0.1)), "momentum: expected a number in [0, 1] or null");
}

TEST(LikeBatchNorm2d, RefusesEpsOfZero) {
  EXPECT_SAYS(BatchNorm(BatchNormOptions(3).eps(0)), "eps: expected a number > 0");
}

TEST(LikeBatchNorm2d, RefusesNoFeatures) {
  EXPECT_SAYS(BatchNorm(0), "at least 1 feature");
}

// Options that are written later

TEST(LikeBatchNorm2d, TakesEpsThatIsWrittenLater) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.options.eps(0.3); });
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, TakesAMomentumScheduleStepByStep) {
  Both both;
  for (const double momentum : {0.5, 0.25, 0.125, 0.0, 1.0}) {
    both.each([&](auto& layer) { layer.options.momentum(momentum); });
    EXPECT_SAME(both.train(1)) << momentum;
  }
}

TEST(LikeBatchNorm2d, TakesTheAverageOfAllStepsThatIsWrittenLater) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.options.momentum(std::nullopt); });
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, WhatIsWrittenLaterCountsBeforeTheStrategysJson) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(
      R"({"name": "precise", "base": {"name": "sync", "eps": 0.5, "momentum": 0.5}})"));
  Both both;
  layer->forward(batch(6, 0));
  layer->options.eps(1e-5);
  layer->options.momentum(0.1);
  layer->reset_running_stats();
  EXPECT_LT(difference(layer->forward(batch(6, 1)), both.theirs->forward(batch(6, 1))), kSame);
  EXPECT_LT(difference(layer->running_var, both.theirs->running_var), kSame);
  layer->options.total_steps(100);  // and stays written
  layer->reset_running_stats();
  both.theirs->reset_running_stats();
  EXPECT_LT(difference(layer->forward(batch(6, 1)), both.theirs->forward(batch(6, 1))), kSame);
  EXPECT_LT(difference(layer->running_var, both.theirs->running_var), kSame);
}

TEST(LikeBatchNorm2d, UntrackedLaterUsesTheBatchAndLeavesItsBuffers) {
  Both both;
  both.train();
  const at::Tensor mean = both.ours->running_mean.clone();
  both.each([](auto& layer) {
    layer.options.track_running_stats(false);
    layer.eval();
  });
  EXPECT_LT(difference(both.ours->forward(batch(2, 9)), both.theirs->forward(batch(2, 9))), kSame);
  both.ours->train();
  both.ours->forward(batch(2, 9));
  EXPECT_EQ(difference(both.ours->running_mean, mean), 0);
}

TEST(LikeBatchNorm2d, RefusesToTrackLaterWhatItHasNoBuffersFor) {
  BatchNorm layer(BatchNormOptions(kChannels).track_running_stats(false));
  layer->options.track_running_stats(true);
  EXPECT_SAYS(layer->forward(batch(2, 0).to(at::kFloat)),
              "track_running_stats: it was made without running statistics");
}

TEST(LikeBatchNorm2d, RefusesAffineThatIsWrittenLater) {
  BatchNorm layer(kChannels);
  layer->options.affine(false);
  EXPECT_SAYS(layer->forward(batch(2, 0).to(at::kFloat)),
              "would give it other tensors; set_options does that");
  EXPECT_SAYS(layer->forward(batch(2, 0).to(at::kFloat)), "would give it other tensors");
  layer->options.affine(true);
  EXPECT_EQ(layer->forward(batch(2, 0).to(at::kFloat)).dim(), 4);
}

TEST(LikeBatchNorm2d, RefusesFeaturesThatAreWrittenLater) {
  BatchNorm layer(kChannels);
  layer->options.num_features(4);
  EXPECT_SAYS(layer->forward(batch(2, 0).to(at::kFloat)), "num_features: its tensors have 3, got 4");
}

TEST(LikeBatchNorm2d, RefusesValuesThatAreWrittenLaterAsItDoesAtFirst) {
  BatchNorm layer(kChannels);
  layer->options.momentum(2);
  EXPECT_SAYS(layer->forward(batch(2, 0).to(at::kFloat)), "momentum: expected a number in [0, 1]");
  layer->options.momentum(0.5).strategy("synk");
  EXPECT_SAYS(layer->forward(batch(2, 0).to(at::kFloat)), "did you mean \"sync\"");
}

// Tensors that are assigned

TEST(LikeBatchNorm2d, EvaluatesByAssignedStatistics) {
  Both both;
  both.each([](auto& layer) {
    layer.running_mean = at::full({kChannels}, 2.0, at::kDouble);
    layer.running_var = at::full({kChannels}, 4.0, at::kDouble);
  });
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, TrainsOnFromAnAssignedMean) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.running_mean = random(5); });
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, TrainsOnFromAnAssignedVariance) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.running_var = random(5); });
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, CountsOnFromAnAssignedCount) {
  Both both(Options(kChannels).momentum(std::nullopt));
  both.train();
  both.each([](auto& layer) { layer.num_batches_tracked = at::full({}, 10, at::kLong); });
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, TrainsAnAssignedWeight) {
  Both both;
  both.each([](auto& layer) { layer.weight = random(4).requires_grad_(); });
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, TrainsAnAssignedBias) {
  Both both;
  both.each([](auto& layer) { layer.bias = random(4).requires_grad_(); });
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, ReachesWhatAnAssignedWeightWasMadeFrom) {
  at::Tensor sources[2];
  size_t which = 0;
  Both both;
  both.each([&](auto& layer) {
    at::Tensor& source = sources[which++];
    source = random(4).requires_grad_();
    layer.weight = source * 2;
    layer.forward(batch(6, 0)).square().sum().backward();
  });
  EXPECT_SAME(difference(sources[0].grad(), sources[1].grad()));
}

TEST(LikeBatchNorm2d, TakesAStridedWeight) {
  at::Tensor tables[2];
  size_t which = 0;
  Both both;
  both.each([&](auto& layer) {
    at::Tensor& table = tables[which++];
    table = at::stack({random(4), random(5)}, 1).requires_grad_();
    layer.weight = table.select(1, 1);
    layer.forward(batch(6, 0)).square().sum().backward();
  });
  EXPECT_SAME(difference(tables[0].grad(), tables[1].grad()));
}

TEST(LikeBatchNorm2d, TakesStridedStatistics) {
  Both both;
  both.each([](auto& layer) { layer.running_var = at::stack({random(4), random(5)}, 1).select(1, 1); });
  EXPECT_SAME(both.evaluate());
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, TakesWhatIsAssignedThroughAReference) {
  Both both;
  both.train();
  both.each([](auto& layer) {
    at::Tensor& mean = layer.running_mean;
    mean = random(6);
    at::Tensor& weight = layer.weight;
    weight = random(7).requires_grad_();
  });
  EXPECT_SAME(both.train());
  EXPECT_TRUE(both.ours->named_parameters()["weight"].is_same(both.ours->weight));
}

TEST(LikeBatchNorm2d, SwapsTheStatisticsOfTwoLayers) {
  Both one, two;
  one.train();
  two.train(2);
  std::swap(one.ours->running_mean, two.ours->running_mean);
  std::swap(one.theirs->running_mean, two.theirs->running_mean);
  EXPECT_SAME(one.train());
  EXPECT_SAME(two.train());
}

TEST(LikeBatchNorm2d, AssignedTensorsAreTheModules) {
  BatchNorm layer = norm_of(kChannels);
  const at::Tensor weight = random(1).requires_grad_(), mean = random(2);
  layer->weight = weight;
  layer->running_mean = mean;
  EXPECT_TRUE(layer->parameters().front().is_same(weight));
  EXPECT_TRUE(layer->named_buffers()["running_mean"].is_same(mean));
  std::stringstream file;
  torch::save(layer, file);
  BatchNorm loaded = norm_of(kChannels);
  torch::load(loaded, file);
  EXPECT_EQ(difference(loaded->weight, weight), 0);
  EXPECT_EQ(difference(std::dynamic_pointer_cast<BatchNormImpl>(layer->clone())->running_mean, mean), 0);
  layer->forward(batch(6, 0));
  EXPECT_TRUE(layer->running_mean.is_same(mean)) << "the step is in the tensor that was assigned";
  EXPECT_GT(difference(mean, random(2)), 0);
}

TEST(LikeBatchNorm2d, AnOptimizerMadeBehindAnAssignmentTrains) {
  BatchNorm layer = norm_of(kChannels);
  layer->weight = random(1).requires_grad_();
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  layer->forward(batch(6, 0)).square().sum().backward();
  sgd.step();
  EXPECT_GT(difference(layer->weight, random(1)), 0);
}

TEST(LikeBatchNorm2d, ACopyOfAMemberIsAPlainTensor) {
  BatchNorm layer = norm_of(kChannels);
  auto copy = layer->weight;
  copy = random(1);
  EXPECT_EQ(difference(layer->weight, at::ones({kChannels})), 0);
}

TEST(LikeBatchNorm2d, RefusesAWeightOfAnotherSize) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->weight = at::ones({4}), "weight: expected a tensor of [3], got [4]");
}

TEST(LikeBatchNorm2d, RefusesABiasOfAnotherSize) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->bias = at::ones({1}), "bias: expected a tensor of [3], got [1]");
}

TEST(LikeBatchNorm2d, RefusesAMeanOfAnotherSize) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->running_mean = at::ones({2}), "running_mean: expected a tensor of [3], got [2]");
}

TEST(LikeBatchNorm2d, RefusesAVarianceOfAnotherSize) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->running_var = at::ones({1, 3}), "running_var: expected a tensor of [3], got [1, 3]");
}

TEST(LikeBatchNorm2d, RefusesAnUndefinedMean) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->running_mean = at::Tensor(), "expected a tensor of [3], got an undefined one");
}

TEST(LikeBatchNorm2d, RefusesAWeightWhereItHasNone) {
  BatchNorm layer(BatchNormOptions(kChannels).affine(false));
  EXPECT_SAYS(layer->weight = at::ones({3}), "it has no weight (affine false)");
}

TEST(LikeBatchNorm2d, RefusesAMeanWhereItHasNone) {
  BatchNorm layer(BatchNormOptions(kChannels).track_running_stats(false));
  EXPECT_SAYS(layer->running_mean = at::ones({3}), "it has no running_mean (it keeps no running statistics)");
}

TEST(LikeBatchNorm2d, RefusesStatisticsOfAnotherType) {
  BatchNorm layer(kChannels);
  layer->running_mean = at::ones({3}, at::kDouble);
  EXPECT_SAYS(layer->forward(at::ones({2, 3, 2, 2})),
              "running_mean: expected Float [3] on cpu beside this input");
}

TEST(LikeBatchNorm2d, RefusesAWeightOfAnotherType) {
  BatchNorm layer(kChannels);
  layer->weight = at::ones({3}, at::kDouble);
  EXPECT_SAYS(layer->forward(at::ones({2, 3, 2, 2})), "weight: expected Float [3] on cpu beside this input");
}

TEST(LikeBatchNorm2d, FollowsSetData) {
  Both both;
  both.train();
  both.each([](auto& layer) {
    layer.running_mean.set_data(random(3));
    layer.weight.set_data(random(4));
  });
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, FollowsWritesInPlace) {
  Both both;
  both.train();
  both.each([](auto& layer) {
    const at::NoGradGuard none;
    layer.running_mean.fill_(2);
    layer.running_var.mul_(3);
    layer.weight.mul_(1.5);
  });
  EXPECT_SAME(both.train());
  EXPECT_SAME(both.evaluate());
}

TEST(LikeBatchNorm2d, FollowsWritesThroughData) {
  Both both;
  both.train();
  both.each([](auto& layer) {
    layer.running_mean.data().fill_(2);
    layer.weight.data().mul_(1.5);
  });
  EXPECT_SAME(both.train());
}

}  // namespace
}  // namespace bnlab
