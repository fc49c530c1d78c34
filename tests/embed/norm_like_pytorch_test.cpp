// Rows of harness/embed/like_pytorch.md: BatchNorm's functions as a module.
#include "like_pytorch.hpp"

namespace bnlab {
namespace {

TEST(LikeBatchNorm2d, TrainAndEvalSetTheMode) {
  Both both;
  both.each([](auto& layer) {
    EXPECT_TRUE(layer.is_training());
    layer.eval();
    EXPECT_FALSE(layer.is_training());
    layer.train();
    EXPECT_TRUE(layer.is_training());
    layer.train(false);
    EXPECT_FALSE(layer.is_training());
  });
}

TEST(LikeBatchNorm2d, EvaluationWritesNothing) {
  Both both;
  both.train();
  const at::Tensor mean = both.ours->running_mean.clone(), count = both.ours->num_batches_tracked.clone();
  const int64_t version = both.ours->running_mean._version();
  EXPECT_SAME(both.evaluate());
  EXPECT_EQ(difference(both.ours->running_mean, mean), 0);
  EXPECT_EQ(both.ours->num_batches_tracked.item<int64_t>(), count.item<int64_t>());
  EXPECT_EQ(both.ours->running_mean._version(), version);
}

TEST(LikeBatchNorm2d, ResetRunningStatsBeginsAnew) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.reset_running_stats(); });
  EXPECT_EQ(both.ours->num_batches_tracked.item<int64_t>(), 0);
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, ResetParametersBeginsAnewInTheSameTensors) {
  Both both;
  both.each([](auto& layer) {
    const at::NoGradGuard none;
    layer.weight.fill_(5);
  });
  both.train();
  const at::Tensor weight = both.ours->weight;
  both.each([](auto& layer) { layer.reset_parameters(); });
  EXPECT_TRUE(both.ours->weight.is_same(weight));
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, ResetMakesNewTensorsByTheOptionsAsWritten) {
  BatchNorm layer(kChannels);
  layer->options.num_features(4).affine(false);
  layer->reset();
  EXPECT_TRUE(layer->parameters().empty());
  EXPECT_EQ(layer->named_buffers()["running_mean"].size(0), 4);
  EXPECT_EQ(layer->forward(at::rand({2, 4, 2, 2})).size(1), 4);
}

TEST(LikeBatchNorm2d, ZeroGradDropsOrZeroesGradients) {
  Both both;
  both.train(1);
  both.each([](auto& layer) {
    layer.zero_grad(/*set_to_none=*/false);
    EXPECT_EQ(layer.weight.grad().abs().sum().template item<double>(), 0);
    layer.zero_grad();
    EXPECT_FALSE(layer.weight.grad().defined());
  });
}

TEST(LikeBatchNorm2d, NamedParametersAreTheSame) {
  Both both;
  EXPECT_EQ(both.ours->named_parameters().keys(), both.theirs->named_parameters().keys());
}

TEST(LikeBatchNorm2d, NamedBuffersAreTheSame) {
  Both both;
  EXPECT_EQ(both.ours->named_buffers().keys(), both.theirs->named_buffers().keys());
}

TEST(LikeBatchNorm2d, ParametersRequireGradientsAndBuffersDoNot) {
  Both both;
  both.each([](auto& layer) {
    for (const at::Tensor& parameter : layer.parameters()) EXPECT_TRUE(parameter.requires_grad());
    for (const at::Tensor& buffer : layer.buffers()) EXPECT_FALSE(buffer.requires_grad());
  });
}

TEST(LikeBatchNorm2d, LoadsWhatBatchNorm2dHasSaved) {
  Both both, fresh;
  both.train();
  copy_through_a_file(both.theirs, fresh.ours);
  copy_through_a_file(both.theirs, fresh.theirs);
  EXPECT_SAME(fresh.train());
}

TEST(LikeBatchNorm2d, IsLoadedByBatchNorm2d) {
  Both both, fresh;
  both.train();
  copy_through_a_file(both.ours, fresh.ours);
  copy_through_a_file(both.ours, fresh.theirs);
  EXPECT_SAME(fresh.evaluate());
}

TEST(LikeBatchNorm2d, EveryLoadCountsHoweverMany) {
  Both both, one, two;
  one.train();
  two.train(2);
  for (int round = 0; round < 4; ++round) {
    both.train(1);
    copy_through_a_file(one.theirs, both.ours);
    copy_through_a_file(one.theirs, both.theirs);
    copy_through_a_file(two.theirs, both.ours);
    copy_through_a_file(two.theirs, both.theirs);
    EXPECT_SAME(both.train(1));
  }
}

TEST(LikeBatchNorm2d, RefusesAFileThatLacksATensor) {
  nn::BatchNorm2d without(Options(kChannels).track_running_stats(false));
  std::stringstream file;
  torch::save(without, file);
  BatchNorm layer(kChannels);
  EXPECT_ANY_THROW(torch::load(layer, file));
}

TEST(LikeBatchNorm2d, RefusesToPassWithAFileOfAnotherSize) {
  nn::BatchNorm2d wide(4);
  std::stringstream file;
  torch::save(wide, file);
  BatchNorm layer(kChannels);
  torch::load(layer, file);
  EXPECT_SAYS(layer->forward(at::rand({2, 3, 2, 2})),
              "weight: expected Float [3] on cpu beside this input, got Float [4]");
}

TEST(LikeBatchNorm2d, ClonesAreApart) {
  Both both;
  both.train();
  Both copy;
  copy.ours = BatchNorm(std::dynamic_pointer_cast<BatchNormImpl>(both.ours->clone()));
  copy.theirs = nn::BatchNorm2d(std::dynamic_pointer_cast<nn::BatchNorm2dImpl>(both.theirs->clone()));
  EXPECT_SAME(copy.train());
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, ClonesHaveTheOptionsAsWritten) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy(R"({"name": "sync", "momentum": 0.9})"));
  layer->options.momentum(0.2);
  BatchNorm copy(std::dynamic_pointer_cast<BatchNormImpl>(layer->clone()));
  layer->forward(batch(6, 0));
  copy->forward(batch(6, 0));
  EXPECT_EQ(difference(layer->running_mean, copy->running_mean), 0);
  EXPECT_LT(difference(layer->running_mean, 0.2 * batch(6, 0).mean({0, 2, 3})), kSame);
}

struct Holder : nn::Cloneable<Holder> {
  Holder() { Holder::reset(); }
  void reset() override { norm = register_module("norm", norm_of(kChannels)); }
  BatchNorm norm = nullptr;
};

TEST(LikeBatchNorm2d, ClonesOfAModuleThatHoldsItFollowAssignments) {
  const auto holder = std::make_shared<Holder>();
  holder->norm->forward(batch(6, 0));
  const auto copy = std::dynamic_pointer_cast<Holder>(holder->clone());
  EXPECT_EQ(difference(copy->norm->running_mean, holder->norm->running_mean), 0);
  copy->norm->running_mean = random(1);
  copy->eval();
  holder->eval();
  EXPECT_GT(difference(copy->norm(batch(2, 0)), holder->norm(batch(2, 0))), 0.01);
  EXPECT_EQ(difference(copy->named_buffers()["norm.running_mean"], random(1)), 0);
}

TEST(LikeBatchNorm2d, MovesToAnotherPrecision) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.to(at::kFloat); });
  EXPECT_LT(both.pass(batch(6, 8).to(at::kFloat)), 1e-5);
  EXPECT_EQ(both.ours->running_var.scalar_type(), at::kFloat);
}

TEST(LikeBatchNorm2d, MovesToADevice) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.to(at::Device(at::kCPU)); });
  EXPECT_SAME(both.train());
}

TEST(LikeBatchNorm2d, CountsInIntegersWhateverItsType) {
  BatchNorm layer(kChannels);
  layer->to(at::kDouble);
  EXPECT_EQ(layer->num_batches_tracked.scalar_type(), at::kLong);
}

TEST(LikeBatchNorm2d, ApplyVisitsIt) {
  nn::Sequential net(BatchNorm(3), nn::ReLU());
  int seen = 0;
  net->apply([&](nn::Module& module) { seen += module.as<BatchNormImpl>() != nullptr ? 1 : 0; });
  EXPECT_EQ(seen, 1);
  EXPECT_EQ(net->modules().size(), 3U);
  EXPECT_TRUE(BatchNorm(3)->children().empty());
}

TEST(LikeBatchNorm2d, PrintsItsOptions) {
  std::stringstream ours, theirs;
  ours << BatchNorm(BatchNormOptions(8).momentum(std::nullopt));
  theirs << nn::BatchNorm2d(Options(8).momentum(std::nullopt));
  const std::string told =
      theirs.str().substr(theirs.str().find('('), theirs.str().find(')') - theirs.str().find('('));
  EXPECT_EQ(told.find("(8, eps=1e-05, momentum=None, affine=true, track_running_stats=true"), 0U) << told;
  EXPECT_NE(ours.str().find(told), std::string::npos) << ours.str();
}

TEST(LikeBatchNorm2d, IsSerializable) {
  EXPECT_TRUE(BatchNorm(3)->is_serializable());
}

TEST(LikeBatchNorm2d, StandsInASequential) {
  nn::Sequential ours(norm_of(kChannels), nn::ReLU()), theirs(plain_norm(), nn::ReLU());
  EXPECT_LT(difference(ours->forward(batch(6, 0)), theirs->forward(batch(6, 0))), kSame);
}

TEST(LikeBatchNorm2d, TrainsByAnOptimizer) {
  Both both;
  torch::optim::SGD ours(both.ours->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9)),
      theirs(both.theirs->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 3; ++step) {
    EXPECT_SAME(both.train(1));
    ours.step();
    theirs.step();
  }
  EXPECT_SAME(difference(both.ours->weight, both.theirs->weight));
}

TEST(LikeBatchNorm2d, FrozenParametersGetNoGradient) {
  Both both;
  both.each([](auto& layer) { layer.weight.requires_grad_(false); });
  EXPECT_SAME(both.train());
  EXPECT_FALSE(both.ours->weight.grad().defined());
  EXPECT_TRUE(both.ours->bias.grad().defined());
}

TEST(LikeBatchNorm2d, GradientsAddUpOverPasses) {
  Both both;
  both.each([](auto& layer) {
    layer.forward(batch(6, 0)).square().sum().backward();
    layer.forward(batch(6, 1)).square().sum().backward();
  });
  EXPECT_SAME(difference(both.ours->weight.grad(), both.theirs->weight.grad()));
  EXPECT_SAME(difference(both.ours->running_mean, both.theirs->running_mean));
}

TEST(LikeBatchNorm2d, AGraphThatIsKeptCanBePassedTwice) {
  Both both;
  both.each([](auto& layer) {
    const at::Tensor loss = layer.forward(batch(6, 0)).pow(3).sum();
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
  });
  EXPECT_LT(difference(both.ours->weight.grad(), both.theirs->weight.grad()), 1e-9);
}

TEST(LikeBatchNorm2d, TrainsItsStatisticsWithoutGradients) {
  const at::NoGradGuard none;
  Both both;
  both.each([](auto& layer) { EXPECT_FALSE(layer.forward(batch(6, 0)).requires_grad()); });
  EXPECT_SAME(difference(both.ours->running_var, both.theirs->running_var));
}

TEST(LikeBatchNorm2d, EvaluatesInInferenceMode) {
  Both both;
  both.train();
  both.each([](auto& layer) { layer.eval(); });
  const c10::InferenceMode guard;
  EXPECT_SAME(difference(both.ours->forward(batch(2, 0)), both.theirs->forward(batch(2, 0))));
}

TEST(LikeBatchNorm2d, TwoLayersShareATensor) {
  Both one, two;
  for (auto* pair : {&one, &two}) {
    pair->ours->weight = one.ours->weight;
    pair->theirs->weight = one.theirs->weight;
  }
  two.ours->running_mean = one.ours->running_mean;
  two.theirs->running_mean = one.theirs->running_mean;
  for (int step = 0; step < 3; ++step) {
    EXPECT_SAME(one.train(1));
    EXPECT_SAME(two.train(1));
  }
}

}  // namespace
}  // namespace bnlab
