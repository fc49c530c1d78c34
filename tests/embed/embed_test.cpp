// The strategies as layers of other programs, against torch::nn::BatchNorm2d.
#include "harness/embed/bnlab.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/serialize.h>
#include <torch/types.h>

#include <functional>
#include <future>
#include <sstream>
#include <utility>

#include "harness/communicator/host/network.hpp"

namespace bnlab {
namespace {

constexpr int64_t kChannels = 3;

torch::nn::BatchNorm2d whole_batch() {
  torch::nn::BatchNorm2d layer(kChannels);
  layer->to(at::kDouble);
  layer->num_batches_tracked.set_data(
      layer->num_batches_tracked.to(at::kLong));  // LibTorch misreads it as a double
  return layer;
}

at::Tensor batch(int64_t rows, uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({rows, kChannels, 5, 4}, generator, at::kDouble) * 3 + 1;
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

// One training step's output, and the gradients of input and weight.
struct Trained {
  at::Tensor y, dx, dweight;
};

at::Tensor gradient(int64_t rows) {
  return batch(rows, 99);
}

template <class Layer>
Trained train(Layer& layer, const at::Tensor& images, const at::Tensor& dy) {
  const at::Tensor x = images.detach().requires_grad_();
  layer.zero_grad();
  const at::Tensor y = layer.forward(x);
  y.backward(dy);
  return {y.detach(), x.grad(), layer.named_parameters()["weight"].grad()};
}

std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Embed, SyncIsBatchNormOfTheWholeBatchInTrainingAndEvaluation) {
  for (const int64_t towers : {1, 2, 3}) {  // 8 rows in 3 towers: 3, 3 and 2
    const auto layer = Norms("sync", {.towers = towers, .dtype = at::kDouble}).layer(kChannels);
    torch::nn::BatchNorm2d plain = whole_batch();
    for (uint64_t step = 0; step < 3; ++step) {
      const Trained ours = train(*layer, batch(8, step), gradient(8));
      const Trained theirs = train(*plain, batch(8, step), gradient(8));
      EXPECT_LT(difference(ours.y, theirs.y), 1e-12);
      EXPECT_LT(difference(ours.dx, theirs.dx), 1e-12);
      EXPECT_LT(difference(ours.dweight, theirs.dweight), 1e-11);
    }
    layer->eval();
    plain->eval();
    EXPECT_LT(difference(layer->forward(batch(2, 7)), plain->forward(batch(2, 7))), 1e-12);
  }
}

TEST(Embed, PerTowerIsBatchNormOfEachTower) {
  const auto layer = Norms("per_tower", {.towers = 2, .dtype = at::kDouble}).layer(kChannels);
  const at::Tensor x = batch(8, 0);
  const at::Tensor y = layer->forward(x);
  EXPECT_LT(difference(y.narrow(0, 4, 4), whole_batch()->forward(x.narrow(0, 4, 4))), 1e-12);
  EXPECT_GT(difference(y, whole_batch()->forward(x)), 1e-3);
}

TEST(Embed, RanksTogetherAreBatchNormOfTheWholeBatch) {
  const int port = LoopbackSocket().port();
  const at::Tensor x = batch(8, 0);
  const at::Tensor seen = batch(2, 7);
  const auto on_rank = [&](int rank) {
    const auto layer =
        Norms("sync", {.towers = 4, .dtype = at::kDouble, .ranks = {rank, 2, "127.0.0.1", port}})
            .layer(kChannels);
    Trained trained = train(*layer, x.narrow(0, 4 * rank, 4), gradient(8).narrow(0, 4 * rank, 4));
    layer->eval();
    return std::pair(trained, layer->forward(seen).detach());
  };
  auto other = std::async(std::launch::async, on_rank, 1);
  const auto [first, evaluated] = on_rank(0);
  const auto [second, evaluated_there] = other.get();

  torch::nn::BatchNorm2d plain = whole_batch();
  const Trained whole = train(*plain, x, gradient(8));
  EXPECT_LT(difference(at::cat({first.y, second.y}), whole.y), 1e-12);
  EXPECT_LT(difference(at::cat({first.dx, second.dx}), whole.dx), 1e-12);
  EXPECT_LT(difference(first.dweight + second.dweight, whole.dweight), 1e-11);
  plain->eval();
  EXPECT_LT(difference(evaluated, plain->forward(seen)), 1e-12);
  EXPECT_EQ(difference(evaluated, evaluated_there), 0);
}

TEST(Embed, EvaluatingInBetweenDoesNotDisturbTraining) {
  const auto remembered = [](const char* strategy, bool evaluates) {
    Norms norms(strategy, {.towers = 4, .steps = 4, .dtype = at::kDouble});
    const auto last = norms.layer(kChannels);
    torch::nn::Sequential net(norms.layer(kChannels), torch::nn::ReLU(), last);
    for (uint64_t step = 0; step < 4; ++step) {
      net->forward(batch(8, step));
      if (evaluates) {
        net->eval();
        net->forward(batch(2, 7));
        net->train();
      }
    }
    net->eval();
    return last->named_buffers()["running_var"].clone();
  };
  for (const char* strategy : {"averaged", "every_tower", "batch_renorm"}) {
    EXPECT_EQ(difference(remembered(strategy, true), remembered(strategy, false)), 0) << strategy;
  }
}

TEST(Embed, OneLayerInEvaluationLeavesTheOthersTraining) {
  Norms norms("averaged", {.towers = 2, .dtype = at::kDouble});
  const auto still = norms.layer(kChannels);
  const auto moving = norms.layer(kChannels);
  still->eval();
  still->forward(batch(4, 0));
  moving->forward(batch(4, 0));
  moving->eval();
  EXPECT_EQ(difference(still->named_buffers()["running_mean"], at::zeros({kChannels}, at::kDouble)), 0);
  EXPECT_GT(difference(moving->named_buffers()["running_mean"], at::zeros({kChannels}, at::kDouble)), 1e-3);
}

TEST(Embed, TakesTheCheckpointOfABatchNormAndGoesOnFromIt) {
  torch::nn::BatchNorm2d plain = whole_batch();
  plain->forward(batch(8, 0));
  std::stringstream file;
  torch::save(plain, file);
  auto layer = Norms("sync", {.towers = 2, .dtype = at::kDouble}).layer(kChannels);
  torch::load(layer, file);
  EXPECT_EQ(layer->named_buffers()["num_batches_tracked"].item<int64_t>(), 1);
  for (torch::nn::Module* module : std::initializer_list<torch::nn::Module*>{layer.get(), plain.get()}) {
    module->train();
  }
  layer->forward(batch(8, 1));
  plain->forward(batch(8, 1));
  EXPECT_EQ(layer->named_buffers()["num_batches_tracked"].item<int64_t>(), 2);
  layer->eval();
  EXPECT_LT(difference(layer->named_buffers()["running_var"], plain->running_var), 1e-12);
}

TEST(Embed, AFrozenLayerNormalisesAsBeforeAndItsWeightsHaveNoGradients) {
  const auto layer =
      Norms(R"({"name": "frozen", "from_step": 1})", {.towers = 2, .dtype = at::kDouble}).layer(kChannels);
  EXPECT_TRUE(train(*layer, batch(8, 0), gradient(8)).dweight.defined());
  const Trained frozen = train(*layer, batch(8, 1), gradient(8));
  EXPECT_FALSE(frozen.dweight.defined());
  layer->eval();
  EXPECT_EQ(difference(frozen.y, layer->forward(batch(8, 1))), 0);
}

TEST(Embed, SaysWhatDoesNotFit) {
  EXPECT_NE(refusal([] { Norms("synk"); }).find("did you mean \"sync\""), std::string::npos);
  EXPECT_NE(refusal([] { Norms("{\"name\""); }).find("JSON"), std::string::npos);
  EXPECT_NE(refusal([] { Norms("sync", {.towers = 0}); }).find("at least 1 tower"), std::string::npos);
  EXPECT_NE(refusal([] { Norms("weight_norm"); }).find("weights of convolutions"), std::string::npos);
  EXPECT_NE(refusal([] { Norms("precise"); }).find("use its base"), std::string::npos);
  EXPECT_NE(
      refusal([] {
        Norms(R"({"name": "sync", "group_size": 2})", {.towers = 3}).layer(kChannels)->forward(batch(6, 0));
      }).find("divisor of the 3 towers"),
      std::string::npos);
}

}  // namespace
}  // namespace bnlab
