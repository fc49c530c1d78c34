// classifier and cifar_resnet: the published networks, counted and named.
#include <gtest/gtest.h>

#include "harness/models/backbone.hpp"
#include "tests/models/one_rank_network.hpp"

namespace bnlab {
namespace {

OneRankNetwork built(const Json& model, int64_t classes) {
  return OneRankNetwork(model, classes, "per_tower", {}, at::kFloat);
}

TEST(Classifier, OnResNet18IsTorchvisions) {
  OneRankNetwork network =
      built({{"name", "classifier"}, {"backbone", {{"name", "resnet"}, {"depth", 18}}}}, 1000);
  EXPECT_EQ(network.parameters(), 11689512);
  EXPECT_EQ(network.parameters("fc."), 513000);
  const auto parameters = network.network().named_parameters();
  for (const char* name :
       {"conv1.weight", "bn1.bias", "layer2.0.downsample.1.weight", "fc.weight", "fc.bias"}) {
    EXPECT_TRUE(parameters.contains(name)) << name;
  }
  EXPECT_EQ(parameters["fc.weight"].sizes(), (std::vector<int64_t>{1000, 512}));
}

TEST(Classifier, ItsLastLayerIsTheHeadAndTheRestTheBackbone) {
  OneRankNetwork network =
      built({{"name", "classifier"}, {"backbone", {{"name", "resnet"}, {"width", 2}}}}, 3);
  EXPECT_EQ(network.network().part_of("fc.weight"), Part::head);
  EXPECT_EQ(network.network().part_of("layer4.1.bn2.running_mean"), Part::backbone);
}

// torch.nn.Linear's bounds, and other values for another seed's name.
TEST(Classifier, TheLastLayerBeginsAsTorchsLinear) {
  OneRankNetwork network = built({{"name", "cifar_resnet"}, {"depth", 8}}, 100);
  const auto parameters = network.network().named_parameters();
  const double bound = 1 / std::sqrt(64.0);
  for (const char* name : {"fc.weight", "fc.bias"}) {
    const at::Tensor values = parameters[name];
    EXPECT_LE(values.abs().max().item<double>(), bound);
    EXPECT_NEAR(values.std().item<double>(), bound / std::sqrt(3.0), 0.1 * bound) << name;
  }
}

TEST(CifarResNet, HasAsManyParametersAsThePublishedNetworks) {
  struct Published {
    int64_t depth, classes, parameters;
    size_t sites;
  };
  for (const auto& [depth, classes, parameters, sites] :
       {Published{20, 10, 269722, 19}, Published{20, 100, 275572, 19}, Published{56, 10, 853018, 55}}) {
    OneRankNetwork network = built({{"name", "cifar_resnet"}, {"depth", depth}}, classes);
    EXPECT_EQ(network.parameters(), parameters);
    EXPECT_EQ(network.sites().size(), sites);
  }
}

// With the second convolution's weights at zero a block is its skip alone.
TEST(CifarResNet, SkipsTakeEverySecondPixelAndAddChannelsOfZerosOnBothSides) {
  const Json options = resolved_component("backbone", {{"name", "small_resnet"}, {"depth", 8}, {"width", 2}});
  Ledger ledger;
  CountingCommunicator communicator(1, ledger);
  const auto strategy =
      Registered<Strategy>::create(resolved_component("strategy", "none"),
                                   {.statistics = communicator, .host = communicator, .shadows = {}});
  const auto trunk = Registered<Backbone>::create(options, {4})->build(*strategy, "");
  const at::NoGradGuard no_grad;
  for (auto& parameter : trunk->named_parameters())
    if (parameter.key().find("conv2") != std::string::npos) parameter.value().zero_();
  const Batch batch{at::randn({1, 3, 8, 12}), {}, Towers({1}, 1, 0)};
  const Network::Maps maps = trunk->forward(batch.images, batch.pass({}, Mode::train));
  const at::Tensor &before = maps[2], &after = maps[3];
  EXPECT_EQ(after.sizes(), (std::vector<int64_t>{1, 4, 4, 6}));
  EXPECT_TRUE(after.slice(1, 1, 3).equal(before.slice(2, 0, 8, 2).slice(3, 0, 12, 2)));
  EXPECT_GT(before.abs().sum().item<float>(), 0);
  for (const int64_t zeros : {0, 3}) EXPECT_EQ(after.select(1, zeros).abs().max().item<float>(), 0);
  EXPECT_EQ(maps[4].sizes(), (std::vector<int64_t>{1, 8, 2, 3}));
}

TEST(CifarResNet, RefusesDepthsBetween) {
  Problems problems;
  const Json model = {{"name", "cifar_resnet"}, {"depth", 18}};
  check_component("model", resolved_component("model", model), "model", {}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.depth");
  EXPECT_EQ(problems.found()[0].second, "expected 6n + 2 (8, 14, 20, 32, 44, 56, 110, ...), got 18");
}

// Its maps are not where those models look for them.
TEST(SmallResNet, IsRefusedByModelsThatAnswerForPixels) {
  Problems problems;
  const Json model = {{"name", "fcn"}, {"backbone", "small_resnet"}};
  check_component("model", resolved_component("model", model), "model", {}, problems);
  ASSERT_EQ(problems.found().size(), 1u);
  EXPECT_EQ(problems.found()[0].first, "model.backbone");
}

}  // namespace
}  // namespace bnlab
