// Rows of harness/embed/like_pytorch.md: Python's SyncBatchNorm, which is BatchNorm2d over the rows of all
// ranks, on two ranks.
#include "like_pytorch.hpp"
#include "two_ranks.hpp"

namespace bnlab {
namespace {

// What a rank has trained on its rows of a batch of 8.
struct Part {
  at::Tensor y, dx, dweight, mean, var, count;
};

Part part_of(BatchNorm& layer, const at::Tensor& x, int64_t first, int64_t end) {
  const Trained trained = train_part(layer, x, first, end);
  return {trained.y,           trained.dx,         trained.dweight,
          layer->running_mean, layer->running_var, layer->num_batches_tracked};
}

std::pair<Part, Part> on_parts(const at::Tensor& x, int64_t cut,
                               const BatchNormOptions& options = kChannels) {
  return on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(BatchNormOptions(options).strategy("sync").ranks(ranks));
    return part_of(layer, x, ranks.rank() == 0 ? 0 : cut, ranks.rank() == 0 ? cut : x.size(0));
  });
}

struct Whole {
  explicit Whole(const at::Tensor& x, std::optional<double> momentum = 0.1)
      : layer(plain_norm(momentum)), trained(train(layer, x, batch(x.size(0), 99))) {}
  nn::BatchNorm2d layer;
  Trained trained;
};

TEST(LikeSyncBatchNorm, NormalisesByTheRowsOfAllRanks) {
  const auto [first, second] = on_parts(batch(8, 0), 4);
  EXPECT_LT(difference(at::cat({first.y, second.y}), Whole(batch(8, 0)).trained.y), kSame);
}

TEST(LikeSyncBatchNorm, GivesTheGradientOfTheWholeBatchsInput) {
  const auto [first, second] = on_parts(batch(8, 0), 4);
  EXPECT_LT(difference(at::cat({first.dx, second.dx}), Whole(batch(8, 0)).trained.dx), kSame);
}

TEST(LikeSyncBatchNorm, LeavesTheWeightsGradientsToTheAveraging) {
  const auto [first, second] = on_parts(batch(8, 0), 4);
  EXPECT_LT(difference(first.dweight + second.dweight, Whole(batch(8, 0)).trained.dweight), 1e-10);
}

TEST(LikeSyncBatchNorm, RemembersTheWholeBatchOnEveryRank) {
  const auto [first, second] = on_parts(batch(8, 0), 4);
  EXPECT_LT(difference(first.var, Whole(batch(8, 0)).layer->running_var), kSame);
  EXPECT_EQ(difference(first.mean, second.mean), 0);
  EXPECT_EQ(difference(first.var, second.var), 0);
}

TEST(LikeSyncBatchNorm, CountsOnEveryRank) {
  const auto [first, second] = on_parts(batch(8, 0), 4);
  EXPECT_EQ(first.count.item<int64_t>(), 1);
  EXPECT_EQ(second.count.item<int64_t>(), 1);
}

TEST(LikeSyncBatchNorm, RemembersUnevenBatches) {
  const auto [first, second] = on_parts(batch(8, 0), 5);
  EXPECT_LT(difference(first.var, Whole(batch(8, 0)).layer->running_var), kSame);
  EXPECT_EQ(difference(first.var, second.var), 0);
}

TEST(LikeSyncBatchNorm, GivesTheGradientsOfUnevenBatches) {
  const auto [first, second] = on_parts(batch(8, 0), 7);
  EXPECT_LT(difference(at::cat({first.dx, second.dx}), Whole(batch(8, 0)).trained.dx), kSame);
  EXPECT_LT(difference(first.dweight + second.dweight, Whole(batch(8, 0)).trained.dweight), 1e-10);
}

TEST(LikeSyncBatchNorm, TakesARankWithoutRows) {
  const auto [first, second] = on_parts(batch(8, 0), 8);
  EXPECT_LT(difference(first.y, Whole(batch(8, 0)).trained.y), kSame);
  EXPECT_EQ(second.y.size(0), 0);
  EXPECT_EQ(second.dweight.abs().sum().item<double>(), 0);
  EXPECT_EQ(difference(first.var, second.var), 0);
}

TEST(LikeSyncBatchNorm, TakesRanksThatAllHaveNoRows) {
  const auto [first, second] = on_parts(batch(0, 0), 0);
  EXPECT_EQ(first.y.numel() + second.y.numel(), 0);
  EXPECT_EQ(difference(first.var, at::ones({kChannels})), 0);
}

TEST(LikeSyncBatchNorm, TakesOneValuePerRank) {
  const at::Tensor x = batch(2, 0).narrow(2, 0, 1).narrow(3, 0, 1);
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks));
    return layer->forward(x.narrow(0, ranks.rank(), 1)).detach();
  });
  EXPECT_LT(difference(at::cat({first, second}), plain_norm()->forward(x)), kSame);
}

TEST(LikeSyncBatchNorm, RefusesOneValueInAllOnEveryRank) {
  const at::Tensor x = batch(1, 0).narrow(2, 0, 1).narrow(3, 0, 1);
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks));
    return refusal([&] { layer->forward(x.narrow(0, 0, ranks.rank())); });
  });
  EXPECT_NE(first.find("more than 1 value per channel"), std::string::npos) << first;
  EXPECT_NE(second.find("more than 1 value per channel"), std::string::npos) << second;
}

TEST(LikeSyncBatchNorm, TakesTwoDimensions) {
  const at::Tensor x = batch(8, 0).flatten(2).select(2, 0);
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks));
    return layer->forward(x.narrow(0, 4 * ranks.rank(), 4)).detach();
  });
  EXPECT_LT(difference(at::cat({first, second}), at::batch_norm(x, {}, {}, {}, {}, true, 0, 1e-5, false)),
            kSame);
}

TEST(LikeSyncBatchNorm, WorksWithoutAffine) {
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks).affine(false));
    return layer->forward(batch(8, 0).narrow(0, 4 * ranks.rank(), 4)).detach();
  });
  EXPECT_LT(difference(at::cat({first, second}), Whole(batch(8, 0)).trained.y), kSame);
}

TEST(LikeSyncBatchNorm, KeepsChannelsLast) {
  const auto [first, second] = on_parts(batch(8, 0).contiguous(at::MemoryFormat::ChannelsLast), 4);
  EXPECT_TRUE(first.y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LT(difference(at::cat({first.dx, second.dx}), Whole(batch(8, 0)).trained.dx), kSame);
}

TEST(LikeSyncBatchNorm, TakesFloat16) {
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer(synced(ranks));
    return layer->forward(batch(8, 0).narrow(0, 4 * ranks.rank(), 4).to(at::kHalf)).detach();
  });
  EXPECT_EQ(first.scalar_type(), at::kHalf);
  EXPECT_LT(difference(at::cat({first, second}).to(at::kDouble), Whole(batch(8, 0)).trained.y), 0.01);
}

TEST(LikeSyncBatchNorm, TakesEps) {
  const auto [first, second] = on_parts(batch(8, 0), 4, BatchNormOptions(kChannels).eps(0.5));
  EXPECT_LT(difference(at::cat({first.y, second.y}),
                       at::batch_norm(batch(8, 0), {}, {}, {}, {}, true, 0, 0.5, false)),
            kSame);
}

TEST(LikeSyncBatchNorm, WithoutMomentumAveragesAllSteps) {
  const auto [first, second] = on_parts(batch(8, 0), 4, BatchNormOptions(kChannels).momentum(std::nullopt));
  EXPECT_LT(difference(first.var, Whole(batch(8, 0), std::nullopt).layer->running_var), kSame);
}

TEST(LikeSyncBatchNorm, TakesAMomentumThatIsWrittenLater) {
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks));
    layer->options.momentum(0.5);
    return part_of(layer, batch(8, 0), 4 * ranks.rank(), 4 * ranks.rank() + 4);
  });
  EXPECT_LT(difference(first.var, Whole(batch(8, 0), 0.5).layer->running_var), kSame);
  EXPECT_EQ(difference(first.var, second.var), 0);
}

TEST(LikeSyncBatchNorm, WithoutTrackingEvaluatesByTheRanksOwnBatch) {
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks).track_running_stats(false));
    layer->eval();
    return layer->forward(batch(8, 0).narrow(0, 4 * ranks.rank(), 4)).detach();
  });
  EXPECT_LT(difference(first, plain_norm()->forward(batch(8, 0).narrow(0, 0, 4))), kSame);
  EXPECT_LT(difference(second, plain_norm()->forward(batch(8, 0).narrow(0, 4, 4))), kSame);
}

TEST(LikeSyncBatchNorm, EvaluationExchangesNothing) {
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks));
    part_of(layer, batch(8, 0), 4 * ranks.rank(), 4 * ranks.rank() + 4);
    layer->eval();
    const int64_t before = ranks.traffic().exchanges;
    layer->forward(batch(2, 0));
    return ranks.traffic().exchanges - before;
  });
  EXPECT_EQ(first + second, 0);
}

TEST(LikeSyncBatchNorm, OneRankMayEvaluateAlone) {
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks));
    layer->eval();
    return ranks.rank() == 0 ? layer->forward(batch(2, 0)).detach() : at::Tensor();
  });
  EXPECT_LT(difference(first, batch(2, 0) / std::sqrt(1 + 1e-5)), kSame);
}

TEST(LikeSyncBatchNorm, OfOneRankIsBatchNorm) {
  BatchNorm layer = norm_of(BatchNormOptions(kChannels).strategy("sync"));
  const Whole whole(batch(8, 0));
  const Part part = part_of(layer, batch(8, 0), 0, 8);
  EXPECT_LT(difference(part.dx, whole.trained.dx), kSame);
  EXPECT_LT(difference(part.var, whole.layer->running_var), kSame);
}

// A group of one rank beside the world of two.
TEST(LikeSyncBatchNorm, SynchronisesWithinItsProcessGroup) {
  const auto [first, second] = on_two_ranks([&](const Ranks& world) {
    const Ranks alone(group_of(c10::make_intrusive<c10d::HashStore>(), 0, 1));
    BatchNorm layer = norm_of(synced(alone));
    at::Tensor y = layer->forward(batch(8, 0).narrow(0, 4 * world.rank(), 4)).detach();
    world.barrier();
    return y;
  });
  EXPECT_LT(difference(first, plain_norm()->forward(batch(8, 0).narrow(0, 0, 4))), kSame);
  EXPECT_LT(difference(second, plain_norm()->forward(batch(8, 0).narrow(0, 4, 4))), kSame);
}

TEST(LikeSyncBatchNorm, HasBatchNormsStateDictionary) {
  const BatchNorm layer(BatchNormOptions(kChannels).strategy("sync"));
  EXPECT_EQ(layer->named_parameters().keys(), plain_norm()->named_parameters().keys());
  EXPECT_EQ(layer->named_buffers().keys(), plain_norm()->named_buffers().keys());
}

TEST(LikeSyncBatchNorm, NanOnOneRankSpoilsEveryRanksOutputAndNoStatistics) {
  at::Tensor x = batch(8, 0);
  x[0][1][0][0] = std::nan("");
  const auto [first, second] = on_parts(x, 4);
  EXPECT_TRUE(second.y.select(1, 1).isnan().all().item<bool>());
  EXPECT_FALSE(second.y.select(1, 0).isnan().any().item<bool>());
  EXPECT_EQ(first.var[1].item<double>(), 1);
}

nn::Sequential nested() {
  return nn::Sequential(nn::BatchNorm2d(kChannels), nn::ReLU(), nn::InstanceNorm2d(kChannels),
                        nn::BatchNorm2d(kChannels));
}

TEST(LikeSyncBatchNorm, ConvertExchangesEveryBatchNorm) {
  nn::Sequential net = nested();
  EXPECT_EQ(convert(*net, BatchNormOptions().strategy("sync")), 2);
  EXPECT_EQ(net->children()[0]->as<BatchNormImpl>()->options.strategy(), "sync");
  EXPECT_NE(net->children()[3]->as<BatchNormImpl>(), nullptr);
}

TEST(LikeSyncBatchNorm, ConvertLeavesOtherNorms) {
  nn::Sequential net = nested();
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_NE(net->children()[2]->as<nn::InstanceNorm2dImpl>(), nullptr);
}

TEST(LikeSyncBatchNorm, ConvertTakesOneAndThreeDimensions) {
  nn::Sequential net{nn::BatchNorm1d(kChannels), nn::BatchNorm3d(kChannels)};
  EXPECT_EQ(convert(*net, BatchNormOptions().strategy("sync")), 2);
}

TEST(LikeSyncBatchNorm, ConvertKeepsTheNumbers) {
  nn::Sequential net = nested(), same;
  net->forward(batch(6, 0).to(at::kFloat));
  same = nn::Sequential(std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone()));
  convert(*net, BatchNormOptions().strategy("sync"));
  for (uint64_t step = 1; step < 3; ++step) {
    EXPECT_LT(
        difference(net->forward(batch(6, step).to(at::kFloat)), same->forward(batch(6, step).to(at::kFloat))),
        1e-5);
  }
  net->eval();
  same->eval();
  EXPECT_LT(difference(net->forward(batch(6, 3).to(at::kFloat)), same->forward(batch(6, 3).to(at::kFloat))),
            1e-5);
}

TEST(LikeSyncBatchNorm, ConvertKeepsTheTensorsSoThatAnOptimizerGoesOn) {
  nn::Sequential net = nested();
  const at::Tensor weight = net->named_parameters()["0.weight"],
                   mean = net->named_buffers()["0.running_mean"];
  torch::optim::SGD sgd(net->parameters(), 0.1);
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_TRUE(net->named_parameters()["0.weight"].is_same(weight));
  EXPECT_TRUE(net->named_buffers()["0.running_mean"].is_same(mean));
  net->forward(batch(6, 0).to(at::kFloat)).pow(3).sum().backward();
  sgd.step();
  EXPECT_GT(difference(net->children()[3]->as<BatchNormImpl>()->weight, at::ones({kChannels})), 0);
}

TEST(LikeSyncBatchNorm, ConvertKeepsWhatIsFrozen) {
  nn::Sequential net = nested();
  net->named_parameters()["0.weight"].requires_grad_(false);
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_FALSE(net->named_parameters()["0.weight"].requires_grad());
  EXPECT_TRUE(net->named_parameters()["0.bias"].requires_grad());
}

TEST(LikeSyncBatchNorm, ConvertKeepsTheMode) {
  nn::Sequential net = nested();
  net->eval();
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_FALSE(net->children()[0]->is_training());
}

TEST(LikeSyncBatchNorm, ConvertKeepsTheOptionsOfEachLayer) {
  nn::Sequential net(nn::BatchNorm2d(Options(kChannels).eps(0.01).momentum(0.3)),
                     nn::BatchNorm2d(Options(4).affine(false)));
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_EQ(net->children()[0]->as<BatchNormImpl>()->options.eps(), 0.01);
  EXPECT_EQ(net->children()[0]->as<BatchNormImpl>()->options.momentum(), 0.3);
  EXPECT_FALSE(net->children()[1]->as<BatchNormImpl>()->weight.defined());
}

TEST(LikeSyncBatchNorm, ConvertTakesANetworkInHalfPrecision) {
  nn::Sequential net = nested();
  net->to(at::kBFloat16);
  convert(*net, BatchNormOptions().strategy("sync"));
  EXPECT_EQ(net->forward(batch(6, 0).to(at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST(LikeSyncBatchNorm, SetOptionsKeepsTheTensorsSoThatAnOptimizerGoesOn) {
  BatchNorm layer = norm_of(kChannels);
  const at::Tensor weight = layer->weight, mean = layer->running_mean, count = layer->num_batches_tracked;
  torch::optim::SGD sgd(layer->parameters(), 0.1);
  layer->forward(batch(6, 0));
  EXPECT_TRUE(layer->set_options(BatchNormOptions(kChannels).strategy("sync").relu(true)).empty());
  EXPECT_TRUE(layer->weight.is_same(weight) && layer->running_mean.is_same(mean) &&
              layer->num_batches_tracked.is_same(count));
  layer->forward(batch(6, 1)).sum().backward();
  sgd.step();
  EXPECT_GT(difference(layer->weight, at::ones({kChannels})), 0);
  EXPECT_EQ(count.item<int64_t>(), 2);
}

}  // namespace
}  // namespace bnlab
