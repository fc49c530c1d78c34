// group_norm, layer_norm and instance_norm against LibTorch's own, in float64, and what they refuse.
#include <gtest/gtest.h>
#include <torch/types.h>

#include "harness/communicator/world.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

constexpr double kExact = 1e-12;  // a few hundred roundings of 1e-16

// One layer in a world of one with one tower.
class Site {
 public:
  explicit Site(const Json& strategy, int64_t channels)
      : strategy_(Registered<Strategy>::create(resolved_strategy(strategy),
                                               {world_->statistics(), world_->host(), 0, at::kDouble})),
        network_(*strategy_, channels) {}

  at::Tensor apply(const at::Tensor& x, Mode mode = Mode::train) {
    return strategy_->forward(network_, x, {Towers({x.size(0)}, 1, 0), 1, {}, mode}).logits;
  }
  void to(at::ScalarType type) { network_.to(type); }
  at::Tensor parameter(const std::string& name) { return network_.named_parameters()["site." + name]; }

 private:
  class OneLayer : public Network {
   public:
    OneLayer(LayerMaker& layers, int64_t channels)
        : layer_(register_module("site", layers.norm({"site", channels}))) {}
    Maps features(at::Tensor x, const Pass& pass) override {
      return {layer_->forward(std::move(x), {}, pass)};
    }
    Outputs head(const Maps& maps, const Pass&) override { return {maps.front()}; }

   private:
    std::shared_ptr<Layer> layer_;
  };

  std::unique_ptr<World> world_ = join_world({}, at::kCPU);
  std::unique_ptr<Strategy> strategy_;
  OneLayer network_;
};

using Norm = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)>;

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_LT((actual - expected).abs().max().item<double>(), kExact * expected.abs().max().item<double>());
}

void expect_same_values_and_gradients(const Json& strategy, const std::vector<int64_t>& shape,
                                      const Norm& libtorchs) {
  SCOPED_TRACE(strategy.dump() + " " + std::to_string(shape.size()) + " dimensions");
  at::manual_seed(5);
  Site site(strategy, shape[1]);
  const at::Tensor w = site.parameter("weight"), b = site.parameter("bias");
  {
    const at::NoGradGuard no_grad;
    w.uniform_(0.5, 1.5);
    b.normal_();
  }
  const at::Tensor x = at::randn(shape, at::kDouble) * 2 + 3, dy = at::randn(shape, at::kDouble);
  const at::Tensor mine = x.clone().requires_grad_(true), theirs = x.clone().requires_grad_(true);
  const at::Tensor their_w = w.detach().clone().requires_grad_(true);
  const at::Tensor their_b = b.detach().clone().requires_grad_(true);
  const at::Tensor y = site.apply(mine), expected = libtorchs(theirs, their_w, their_b);
  y.backward(dy);
  expected.backward(dy);
  expect_equal(y, expected);
  expect_equal(mine.grad(), theirs.grad());
  expect_equal(w.grad(), their_w.grad());
  expect_equal(b.grad(), their_b.grad());
  expect_equal(site.apply(x, Mode::evaluate_saved), expected);
}

at::Tensor per_channel(const at::Tensor& values, int64_t dimensions) {
  std::vector<int64_t> shape(static_cast<size_t>(dimensions), 1);
  shape[1] = -1;
  return values.view(shape);
}

// Four values per set at least: with two, the input gradient is what little eps leaves of it.
TEST(SampleNorm, GroupNormEqualsLibTorchs) {
  const Norm norm = [](auto& x, auto& w, auto& b) { return at::group_norm(x, 2, w, b, 1e-5); };
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{5, 8}, {3, 8, 7}, {2, 8, 4, 3}}) {
    expect_same_values_and_gradients({{"name", "group_norm"}, {"groups", 2}}, shape, norm);
    expect_same_values_and_gradients({{"name", "group_norm"}, {"channels_per_group", 4}}, shape, norm);
  }
}

TEST(SampleNorm, LayerNormEqualsLibTorchsOverChannelsAndPositions) {
  const Norm norm = [](auto& x, auto& w, auto& b) {
    return at::layer_norm(x, x.sizes().slice(1)) * per_channel(w, x.dim()) + per_channel(b, x.dim());
  };
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{5, 6}, {3, 6, 7}, {2, 6, 4, 3}})
    expect_same_values_and_gradients("layer_norm", shape, norm);
}

TEST(SampleNorm, InstanceNormEqualsLibTorchs) {
  const Norm norm = [](auto& x, auto& w, auto& b) {
    return at::instance_norm(x, w, b, {}, {}, /*use_input_stats=*/true, 0.1, 1e-5, /*cudnn_enabled=*/false);
  };
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{3, 6, 7}, {2, 6, 4, 3}})
    expect_same_values_and_gradients("instance_norm", shape, norm);
}

TEST(SampleNorm, OneValuePerSetIsRefusedInTrainingOnly) {
  Site instance("instance_norm", 4), layer("layer_norm", 4);
  const at::Tensor x = at::randn({3, 4}, at::kDouble);
  try {
    instance.apply(x);
    FAIL() << "not refused";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "more than 1 value per channel is needed to normalise (site site, strategy instance_norm, set of 1)");
  }
  EXPECT_EQ(instance.apply(x, Mode::evaluate_saved).abs().max().item<double>(), 0);
  EXPECT_EQ(instance.apply(x.slice(0, 0, 0)).size(0), 0);  // no sample, no set of one
  EXPECT_NO_THROW(layer.apply(x));
}

TEST(SampleNorm, ParametersInAnotherPrecisionAreRefused) {
  Site site({{"name", "layer_norm"}}, 4);
  site.to(at::kHalf);
  EXPECT_THROW(site.apply(at::ones({2, 4, 3}, at::kDouble)), Error);
}

TEST(SampleNorm, GroupsMustDivideTheChannels) {
  EXPECT_THROW(Site({{"name", "group_norm"}, {"groups", 3}}, 4), Error);
  EXPECT_THROW(Site({{"name", "group_norm"}, {"channels_per_group", 3}}, 4), Error);
}

}  // namespace
}  // namespace bnlab
