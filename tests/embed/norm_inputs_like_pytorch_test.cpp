// Rows of harness/embed/like_pytorch.md: the inputs that BatchNorm takes.
#include <ATen/autocast_mode.h>

#include "like_pytorch.hpp"

namespace bnlab {
namespace {

TEST(LikeBatchNorm2d, TakesTwoDimensionsAsBatchNorm1d) {
  nn::BatchNorm1d plain(kChannels);
  plain->to(at::kDouble);
  const at::Tensor x = batch(6, 0).flatten(2).select(2, 0);
  EXPECT_LT(difference(norm_of(kChannels)->forward(x), plain->forward(x)), kSame);
}

TEST(LikeBatchNorm2d, TakesThreeDimensionsAsBatchNorm1d) {
  nn::BatchNorm1d plain(kChannels);
  plain->to(at::kDouble);
  const at::Tensor x = batch(6, 0).flatten(2);
  EXPECT_LT(difference(norm_of(kChannels)->forward(x), plain->forward(x)), kSame);
}

TEST(LikeBatchNorm2d, TakesFiveDimensionsAsBatchNorm3d) {
  nn::BatchNorm3d plain(kChannels);
  plain->to(at::kDouble);
  const at::Tensor x = batch(6, 0).unsqueeze(2);
  EXPECT_LT(difference(norm_of(kChannels)->forward(x), plain->forward(x)), kSame);
}

TEST(LikeBatchNorm2d, RefusesOneAndSixDimensions) {
  EXPECT_SAYS(norm_of(kChannels)->forward(at::rand({3}, at::kDouble)), "of 2 to 5 dimensions");
  EXPECT_SAYS(norm_of(kChannels)->forward(at::rand({2, 3, 1, 1, 1, 2}, at::kDouble)), "of 2 to 5 dimensions");
}

TEST(LikeBatchNorm2d, KeepsChannelsLast) {
  Both both;
  EXPECT_SAME(both.pass(batch(6, 0).contiguous(at::MemoryFormat::ChannelsLast)));
  EXPECT_TRUE(both.ours->forward(batch(6, 0).contiguous(at::MemoryFormat::ChannelsLast))
                  .is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST(LikeBatchNorm2d, KeepsChannelsLastOfFiveDimensions) {
  const at::Tensor x = at::stack({batch(6, 0), batch(6, 1)}, 2).contiguous(at::MemoryFormat::ChannelsLast3d);
  const at::Tensor y = norm_of(kChannels)->forward(x);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast3d));
  EXPECT_LT(difference(y, norm_of(kChannels)->forward(x.contiguous())), kSame);
}

TEST(LikeBatchNorm2d, TakesInputsOfAnyStride) {
  Both both;
  EXPECT_SAME(both.pass(batch(6, 0).transpose(2, 3)));
  EXPECT_SAME(both.pass(batch(12, 0).slice(0, 0, 12, 2)));
  EXPECT_SAME(both.pass(batch(6, 0).select(3, 0).unsqueeze(3).expand({-1, -1, -1, 4})));
}

TEST(LikeBatchNorm2d, AnEmptyBatchGivesAnEmptyOutputAndChangesNothing) {
  BatchNorm layer = norm_of(kChannels);
  layer->forward(batch(6, 0));
  const at::Tensor mean = layer->running_mean.clone();
  const at::Tensor x = batch(0, 0).requires_grad_(), y = layer->forward(x);
  EXPECT_EQ(y.sizes(), x.sizes());
  y.sum().backward();
  EXPECT_EQ(x.grad().sizes(), x.sizes());
  EXPECT_EQ(layer->weight.grad().abs().sum().item<double>(), 0);
  EXPECT_EQ(difference(layer->running_mean, mean), 0);
}

TEST(LikeBatchNorm2d, EvaluatesAnEmptyBatch) {
  Both both;
  both.each([](auto& layer) {
    layer.eval();
    EXPECT_EQ(layer.forward(batch(0, 0)).numel(), 0);
  });
}

TEST(LikeBatchNorm2d, RefusesOneValuePerChannelInTraining) {
  BatchNorm layer = norm_of(kChannels);
  EXPECT_SAYS(layer->forward(batch(1, 0).narrow(2, 0, 1).narrow(3, 0, 1)), "more than 1 value per channel");
}

TEST(LikeBatchNorm2d, EvaluatesOneValuePerChannel) {
  Both both;
  both.each([](auto& layer) { layer.eval(); });
  EXPECT_SAME(both.pass(batch(1, 0).narrow(2, 0, 1).narrow(3, 0, 1)));
}

TEST(LikeBatchNorm2d, RefusesOtherChannels) {
  EXPECT_SAYS(norm_of(kChannels)->forward(at::rand({2, 4, 2, 2}, at::kDouble)),
              "expected an input [rows, 3, ...]");
  EXPECT_SAYS(norm_of(kChannels)->forward(at::rand({2, 1, 2, 2}, at::kDouble)),
              "expected an input [rows, 3, ...]");
}

TEST(LikeBatchNorm2d, RefusesIntegers) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->forward(at::ones({2, 3, 2, 2}, at::kLong)), "float64, float32, bfloat16 or float16");
}

TEST(LikeBatchNorm2d, RefusesAnUndefinedInput) {
  BatchNorm layer(kChannels);
  EXPECT_SAYS(layer->forward(at::Tensor()), "expected an input, got an undefined tensor");
}

TEST(LikeBatchNorm2d, NanSpoilsTheOutputOfItsChannelButNotTheStatistics) {
  Both both;
  at::Tensor x = batch(6, 0);
  x[0][1][0][0] = std::nan("");
  at::Tensor y[2];
  size_t which = 0;
  both.each([&](auto& layer) { y[which++] = layer.forward(x); });
  EXPECT_TRUE(at::equal(y[0].isnan(), y[1].isnan()));
  EXPECT_TRUE(both.theirs->running_mean[1].isnan().item<bool>());
  EXPECT_EQ(both.ours->running_mean[1].item<double>(), 0);
  EXPECT_SAME(difference(both.ours->running_mean[0], both.theirs->running_mean[0]));
}

TEST(LikeBatchNorm2d, InfinitySpoilsTheOutputOfItsChannelButNotTheStatistics) {
  Both both;
  at::Tensor x = batch(6, 0);
  x[0][2][0][0] = INFINITY;
  EXPECT_TRUE(both.ours->forward(x).select(1, 2).isnan().any().item<bool>());
  EXPECT_EQ(both.ours->running_var[2].item<double>(), 1);
}

TEST(LikeBatchNorm2d, EvaluatesNanByNan) {
  Both both;
  both.each([](auto& layer) { layer.eval(); });
  at::Tensor x = batch(2, 0);
  x[0][1][0][0] = std::nan("");
  const at::Tensor ours = both.ours->forward(x), theirs = both.theirs->forward(x);
  EXPECT_TRUE(at::equal(ours.isnan(), theirs.isnan()));
  EXPECT_SAME(difference(ours.nan_to_num(), theirs.nan_to_num()));
}

TEST(LikeBatchNorm2d, IsAsExactInFloat32) {
  BatchNorm ours(kChannels);
  nn::BatchNorm2d theirs(kChannels);
  const at::Tensor x = (batch(6, 0) + 1000).to(at::kFloat),
                   exact = norm_of(kChannels)->forward(x.to(at::kDouble));
  EXPECT_LE(difference(ours->forward(x).to(at::kDouble), exact),
            std::max(1e-3, difference(theirs->forward(x).to(at::kDouble), exact)));
}

TEST(LikeBatchNorm2d, TakesBfloat16BesideFloat32Weights) {
  BatchNorm ours(kChannels);
  nn::BatchNorm2d theirs(kChannels);
  const at::Tensor x = batch(6, 0).to(at::kBFloat16), y = ours->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_LT(difference(y.to(at::kFloat), theirs->forward(x).to(at::kFloat)), 0.02);
  EXPECT_LT(difference(ours->running_var, theirs->running_var), 1e-3);
}

TEST(LikeBatchNorm2d, TakesFloat16BesideFloat32Weights) {
  BatchNorm ours(kChannels);
  const at::Tensor x = batch(6, 0).to(at::kHalf), y = ours->forward(x);
  EXPECT_EQ(y.scalar_type(), at::kHalf);
  EXPECT_LT(difference(y.to(at::kDouble), norm_of(kChannels)->forward(x.to(at::kDouble))), 0.01);
}

TEST(LikeBatchNorm2d, Float16DoesNotOverflowOnTheWay) {
  BatchNorm ours(kChannels);
  const at::Tensor y = ours->forward((batch(6, 0) * 3000).to(at::kHalf));
  EXPECT_TRUE(y.isfinite().all().item<bool>());
  EXPECT_TRUE(ours->running_var.isfinite().all().item<bool>());
}

TEST(LikeBatchNorm2d, StaysInFloat32WhereTheNetworkGoesToBfloat16) {
  BatchNorm layer(kChannels);
  layer->to(at::kBFloat16);
  EXPECT_EQ(layer->weight.scalar_type(), at::kFloat);
  EXPECT_EQ(layer->forward(batch(6, 0).to(at::kBFloat16)).scalar_type(), at::kBFloat16);
}

TEST(LikeBatchNorm2d, RunsUnderAutocast) {
  nn::Sequential net(nn::Conv2d(kChannels, kChannels, 1), BatchNorm(kChannels));
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const at::Tensor y = net->forward(batch(4, 0).to(at::kFloat));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  y.to(at::kFloat).sum().backward();
  EXPECT_TRUE(net->named_parameters()["1.weight"].grad().defined());
}

TEST(LikeBatchNorm2d, TakesALargeBatch) {
  const at::Tensor x = batch(1, 0).to(at::kFloat).flatten(2).select(2, 0).expand({131080, kChannels}) +
                       at::arange(131080).unsqueeze(1).sin();
  EXPECT_LT(difference(BatchNorm(kChannels)->forward(x), norm_of(kChannels)->forward(x.to(at::kDouble))),
            1e-4);
}

TEST(LikeBatchNorm2d, GivesTheGradientOfItsInputAlone) {
  Both both(Options(kChannels).affine(false));
  at::Tensor gradients[2];
  size_t which = 0;
  both.each([&](auto& layer) {
    const at::Tensor x = batch(6, 0).requires_grad_();
    gradients[which++] = torch::autograd::grad({layer.forward(x).pow(3).sum()}, {x})[0];
  });
  EXPECT_LT(difference(gradients[0], gradients[1]), 1e-10);
}

}  // namespace
}  // namespace bnlab
