// weight_norm: the initialisation from the first batch, the gradients of the reparametrisation, mean-only BN.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab {
namespace {

class OneConvolution : public Network {
 public:
  OneConvolution(LayerMaker& layers, const ConvSite& site)
      : layer_(register_module(site.name, layers.conv(site))) {}
  Maps features(at::Tensor x, const Pass& pass) override { return {layer_->forward(std::move(x), {}, pass)}; }
  Outputs head(const Maps& maps, const Pass&) override { return {maps.front()}; }

 private:
  std::shared_ptr<Layer> layer_;
};

const ConvSite kSite{.name = "conv", .in = 3, .out = 4, .kernel = 3, .stride = 1, .padding = 1};
const ConvSite kPointwise{.name = "conv", .in = 3, .out = 4, .kernel = 1, .stride = 1, .padding = 0};

// One convolution of a strategy on one rank.
class Site {
 public:
  Site(World& world, const Json& strategy, const ConvSite& site = kSite, bool fresh_weights = true,
       at::ScalarType dtype = at::kDouble)
      : world_(world) {
    Strategy::Context context{world.statistics(), world.host(), 3, dtype};
    context.fresh_weights = fresh_weights;
    strategy_ = Registered<Strategy>::create(resolved_strategy(strategy), context);
    network_ = std::make_unique<OneConvolution>(*strategy_, site);
  }

  // x: this rank's samples.
  at::Tensor apply(const at::Tensor& x, const std::vector<int64_t>& towers, int64_t step = 0,
                   Mode mode = Mode::train) {
    return strategy_
        ->forward(*network_, x, {Towers(towers, world_.size(), world_.rank()), 1, {step, 9}, mode})
        .logits;
  }
  at::Tensor parameter(const std::string& name) { return network_->named_parameters()["conv." + name]; }
  // As evaluation reads it.
  at::Tensor running_mean() {
    Calibration no_calibration;
    strategy_->running_statistics()->load_into_buffers({}, no_calibration);
    return network_->named_buffers()["conv.running_mean"];
  }
  bool has_running_mean() { return network_->named_buffers().contains("conv.running_mean"); }
  Strategy& strategy() { return *strategy_; }

 private:
  World& world_;
  std::unique_ptr<Strategy> strategy_;
  std::unique_ptr<OneConvolution> network_;
};

class WeightNorm : public ::testing::Test {
 protected:
  WeightNorm() { at::manual_seed(4); }
  std::unique_ptr<World> world_ = join_world({}, at::kCPU);
  const Json plain_{{"name", "weight_norm"}, {"init", "none"}};
};

at::Tensor images(int64_t n) {
  return at::randn({n, 3, 5, 4}, at::kDouble) * 2 + 1;
}

double largest(const at::Tensor& t) {
  return t.abs().max().item<double>();
}

at::Tensor per_filter(const at::Tensor& values) {
  return values.view({-1, 1, 1, 1});
}

at::Tensor norm_of(const at::Tensor& v) {
  return v.detach().flatten(1).norm(2, 1);
}

TEST_F(WeightNorm, AfterTheInitialisationEveryUnitHasMean0AndTheGivenDeviation) {
  const at::Tensor x = images(8);
  at::Tensor gain, bias;
  for (const std::vector<int64_t>& towers :
       std::vector<std::vector<int64_t>>{{8}, {2, 2, 2, 2}, {0, 5, 1, 2}, {8, 0}}) {
    Site site(*world_, {{"name", "weight_norm"}, {"init_scale", 0.5}});
    EXPECT_GT(largest(norm_of(site.parameter("v")) - 1), 0.1);
    const at::Tensor y = site.apply(x, towers);
    EXPECT_LT(largest(y.mean({0, 2, 3})), kExact);
    EXPECT_LT(largest(y.std({0, 2, 3}, /*unbiased=*/false) - 0.5), kExact);
    if (gain.defined()) {
      EXPECT_LT(largest(site.parameter("gain") - gain), kExact);
      EXPECT_LT(largest(site.parameter("bias") - bias), kExact);
    }
    gain = site.parameter("gain").detach();
    bias = site.parameter("bias").detach();
  }
}

TEST_F(WeightNorm, RanksInitialiseFromTheGlobalBatchEvenWithoutSamplesOfTheirOwn) {
  const at::Tensor x = images(7);
  for (const std::vector<int64_t>& towers : std::vector<std::vector<int64_t>>{{5, 2}, {0, 7}}) {
    Site whole(*world_, "weight_norm");
    whole.apply(x, towers);
    on_thread_ranks(2, at::kCPU, [&](World& world) {
      Site site(world, "weight_norm");
      const Towers mine(towers, 2, world.rank());
      site.apply(x.narrow(0, mine.local_begin(), mine.local_samples()), towers);
      EXPECT_LT(largest(site.parameter("gain") - whole.parameter("gain")), kExact);
      EXPECT_LT(largest(site.parameter("bias") - whole.parameter("bias")), kExact);
    });
  }
}

TEST_F(WeightNorm, InitialisesInTheFirstTrainingStepOfFreshWeightsOnly) {
  const at::Tensor x = images(4);
  const auto is_untouched = [](Site& site) {
    return at::equal(site.parameter("gain"), norm_of(site.parameter("v"))) &&
           largest(site.parameter("bias")) == 0;
  };
  Site loaded(*world_, "weight_norm", kSite, /*fresh_weights=*/false);
  loaded.apply(x, {4});
  EXPECT_TRUE(is_untouched(loaded));
  Site fresh(*world_, "weight_norm");
  fresh.apply(x, {4}, 0, Mode::evaluate_saved);
  fresh.apply(x, {4}, 0, Mode::evaluate_batch);
  fresh.apply(x, {4}, 1);
  fresh.apply(x.slice(0, 0, 0), {0});  // an empty batch says nothing
  EXPECT_TRUE(is_untouched(fresh));
  fresh.apply(x, {4}, 0);
  EXPECT_FALSE(is_untouched(fresh));
}

TEST_F(WeightNorm, WithoutInitialisationItStartsAsThePlainConvolution) {
  Site site(*world_, plain_), none(*world_, "none");
  EXPECT_TRUE(at::equal(site.parameter("v"), none.parameter("weight")));
  const at::Tensor x = images(3);
  EXPECT_LT(largest(site.apply(x, {3}) - none.apply(x, {3})), kExact);
}

TEST_F(WeightNorm, AUnitThatDoesNotVaryIsRefusedByTheNameOfItsSite) {
  for (const double value : {0.0, 0.1}) {  // the second leaves rounding noise
    Site site(*world_, "weight_norm", kPointwise);
    try {
      site.apply(at::full({2, 3, 5, 4}, value, at::kDouble), {1, 1});
      FAIL() << "not refused";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("channel 0 of site conv has standard deviation"),
                std::string::npos)
          << e.what();
    }
  }
}

// dg = dw . v / norm(v), dv = g / norm(v) (dw - dg v / norm(v)), so v . dv = 0.
TEST_F(WeightNorm, GradientsAreThoseOfTheReparametrisation) {
  Site site(*world_, "weight_norm");
  const at::Tensor x = images(4);
  const at::Tensor y = site.apply(x, {2, 2});
  const at::Tensor dy = at::randn_like(y);
  y.backward(dy);
  const at::Tensor v = site.parameter("v").detach(), g = site.parameter("gain").detach();
  const at::Tensor unit = v / per_filter(norm_of(v));
  const at::Tensor w = (unit * per_filter(g)).requires_grad_(true);
  const at::Tensor expected = at::conv2d(x, w, site.parameter("bias").detach(), 1, 1);
  expected.backward(dy);
  const at::Tensor dg = (w.grad() * unit).sum({1, 2, 3});
  const at::Tensor dv = per_filter(g / norm_of(v)) * (w.grad() - per_filter(dg) * unit);
  const at::Tensor found = site.parameter("v").grad();
  EXPECT_LT(largest(y - expected), kExact * largest(expected));
  EXPECT_LT(largest(site.parameter("gain").grad() - dg), kExact * largest(dg));
  EXPECT_LT(largest(found - dv), kExact * largest(dv));
  EXPECT_LT(largest((found * v).sum({1, 2, 3})), kExact * largest(found));
  EXPECT_LT(largest(site.parameter("bias").grad() - dy.sum({0, 2, 3})), kExact * largest(dy.sum({0, 2, 3})));
}

// Behind a 1x1 convolution dx is w^T times the gradient that comes through the mean.
TEST_F(WeightNorm, MeanOnlyPassesTheCentredGradient) {
  for (const bool pooled : {false, true}) {
    SCOPED_TRACE(pooled ? "pooled" : "tower");
    Json strategy{{"name", "weight_norm"}, {"mean_only_bn", true}, {"scope", pooled ? "pooled" : "tower"}};
    Site site(*world_, strategy, kPointwise);
    const std::vector<int64_t> towers{1, 0, 3};
    const at::Tensor x = images(4).requires_grad_(true);
    const at::Tensor y = site.apply(x, towers);
    const at::Tensor dy = at::randn_like(y);
    y.backward(dy);
    EXPECT_EQ(largest(site.parameter("bias")), 0);  // the mean is taken away already
    const at::Tensor w = site.parameter("v").detach() *
                         per_filter(site.parameter("gain").detach() / norm_of(site.parameter("v")));
    const at::Tensor t = at::conv2d(x.detach(), w);
    std::vector<at::Tensor> outputs, centred, means;
    for (const auto& [begin, end] : pooled ? std::vector<std::pair<int, int>>{{0, 4}}
                                           : std::vector<std::pair<int, int>>{{0, 1}, {1, 4}}) {
      const at::Tensor own = t.slice(0, begin, end), own_dy = dy.slice(0, begin, end);
      means.push_back(own.mean({0, 2, 3}));
      outputs.push_back(own - own.mean({0, 2, 3}, /*keepdim=*/true));
      centred.push_back(own_dy - own_dy.mean({0, 2, 3}, /*keepdim=*/true));
    }
    EXPECT_LT(largest(y - at::cat(outputs)), kExact * largest(y));
    const at::Tensor dx = at::conv_transpose2d(at::cat(centred), w);
    EXPECT_LT(largest(x.grad() - dx), kExact * largest(dx));
    EXPECT_LT(largest(site.running_mean() - 0.1 * at::stack(means).mean(0)), kExact);
  }
}

TEST_F(WeightNorm, MeanOnlySubtractsTheRunningMeanInEvaluation) {
  Site site(*world_, {{"name", "weight_norm"}, {"init", "none"}, {"mean_only_bn", true}, {"momentum", 0.5}},
            kPointwise);
  const at::Tensor x = images(4), w = site.parameter("v").detach();
  site.apply(x, {4});
  {
    const at::NoGradGuard no_grad;
    site.parameter("bias").fill_(0.25);
  }
  const at::Tensor t = at::conv2d(x, w);
  const at::Tensor expected = t - 0.5 * t.mean({0, 2, 3}, /*keepdim=*/true) + 0.25;
  EXPECT_NE(site.strategy().running_statistics(), nullptr);
  EXPECT_LT(largest(site.running_mean() - 0.5 * t.mean({0, 2, 3})), kExact);
  EXPECT_LT(largest(site.apply(x, {4}, 1, Mode::evaluate_saved) - expected), kExact);
}

TEST_F(WeightNorm, KeepsNoRunningStatisticsWithoutMeanOnly) {
  Site site(*world_, "weight_norm");
  EXPECT_EQ(site.strategy().running_statistics(), nullptr);
  EXPECT_FALSE(site.has_running_mean());
}

TEST_F(WeightNorm, HalfPrecisionKeepsItsDtypeOverFloat32Parameters) {
  for (const bool mean_only : {false, true}) {
    Site site(*world_, {{"name", "weight_norm"}, {"mean_only_bn", mean_only}}, kSite, true, at::kBFloat16);
    const at::Tensor y = site.apply(images(8).to(at::kBFloat16), {8});
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    EXPECT_EQ(site.parameter("v").scalar_type(), at::kFloat);
    EXPECT_LT(largest(y.to(at::kDouble).std({0, 2, 3}, false) - 1), 0.02);  // 8 bits
  }
}

TEST_F(WeightNorm, OptionsWithoutEffectAreRefused) {
  for (const Json& option :
       {Json{{"scope", "pooled"}}, Json{{"momentum", nullptr}}, Json{{"init", "none"}, {"init_scale", 2}}}) {
    Json strategy{{"name", "weight_norm"}};
    strategy.update(option);
    EXPECT_THROW(Site(*world_, strategy), Error) << strategy.dump();
  }
}

TEST_F(WeightNorm, InitialisedItHasUnitOutputsWhateverThePlacement) {
  const LayerCase c = make_case({{"name", "weight_norm"}, {"init_scale", 0.5}}, {{2, 3, 1, 4}});
  for (const int ranks : {1, 2, 4}) {
    const LayerStepAnswer answer = apply_layer(c, ranks).steps[0];
    const at::Tensor y = rows(at::cat(answer.outputs));
    EXPECT_LT(y.mean(1).abs().max().item<double>(), kExact);
    EXPECT_LT(relative_error(y.std(1, /*unbiased=*/false), at::full({5}, 0.5, at::kDouble)), kExact);
    EXPECT_LT((answer.v_gradient * c.conv->v).flatten(1).sum(1).abs().max().item<double>(), 1e-11);
  }
}

TEST_F(WeightNorm, MeanOnlyCentresTheGradient) {
  const LayerCase c = make_case(
      {{"name", "weight_norm"}, {"init", "none"}, {"mean_only_bn", true}, {"scope", "pooled"}}, {{2, 3}});
  const LayerStepAnswer answer = apply_layer(c).steps[0];
  const at::Tensor v = c.conv->v;
  const at::Tensor w = v * (c.conv->gain / v.flatten(1).norm(2, 1)).view({-1, 1, 1, 1});
  const at::Tensor x = at::cat(c.steps[0].inputs).requires_grad_(true), dy = at::cat(c.steps[0].gradients);
  at::conv2d(x, w, {}, c.conv->stride, c.conv->padding).backward(dy - by_channel(rows(dy).mean(1), dy));
  EXPECT_LT(relative_error(at::cat(answer.input_gradients), x.grad()), kExact);
}

}  // namespace
}  // namespace bnlab
