// A gradient of a gradient, as gradient penalties take it: for every strategy the derivative of |dL/dx|^2 by
// the input and all parameters equals central differences of |dL/dx|^2, which the sweeps compute; on one rank
// and on two, in training and in evaluation. What cannot do that is refused by its name.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

#include "harness/built_network.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/one_site.hpp"
#include "harness/support/error.hpp"

namespace bnlab {
namespace {

at::Tensor noise(at::IntArrayRef shape, uint64_t seed) {
  return at::randn(shape, at::make_generator<at::CPUGeneratorImpl>(seed), at::kDouble);
}

// conv -> norm, ReLU -> tanh -> conv -> norm, the residual, ReLU.
class Block : public Network {
 public:
  explicit Block(LayerMaker& layers)
      : conv1_(register_module("conv1", layers.conv({.name = "conv1", .in = 3, .out = 4}))),
        norm1_(register_module("norm1", layers.norm({"norm1", 4, Activation::relu}))),
        conv2_(register_module("conv2", layers.conv({.name = "conv2", .in = 4, .out = 4}))),
        norm2_(register_module("norm2", layers.norm({"norm2", 4, Activation::relu}))) {}

  Maps features(at::Tensor x, const Pass& pass) override {
    const at::Tensor h = norm1_->forward(conv1_->forward(std::move(x), {}, pass), {}, pass).tanh();
    return {norm2_->forward(conv2_->forward(h, {}, pass), h, pass)};
  }
  Outputs head(const Maps& features, const Pass&) override { return {features.front()}; }

 private:
  std::shared_ptr<Layer> conv1_, norm1_, conv2_, norm2_;
};

constexpr int64_t kTowers = 4, kSamples = 2;  // of each tower

// One rank's |dL/dx|^2 and the derivative of it along a direction of inputs and parameters.
class Penalty {
 public:
  Penalty(const Json& strategy, World& world, Mode mode)
      : built_(resolved_strategy(strategy),
               {.statistics = world.statistics(),
                .host = world.host(),
                .dtype = at::kDouble,
                .in_a_run = false,
                .samples_per_tower = std::vector<int64_t>(kTowers, kSamples)},
               [](LayerMaker& layers) { return std::make_shared<Block>(layers); }),
        mode_(mode) {
    const at::NoGradGuard no_grad;
    batch_.towers = Towers(std::vector<int64_t>(kTowers, kSamples), world.size(), world.rank());
    const int64_t rows = kTowers * kSamples / world.size(), first = rows * world.rank();
    batch_.images = (noise({kTowers * kSamples, 3, 4, 5}, 1) * 2 + 1).narrow(0, first, rows).clone();
    loss_ = noise({kTowers * kSamples, 4, 4, 5}, 2).narrow(0, first, rows);
    variables_ = built_.network().parameters();
    for (uint64_t i = 0; i < variables_.size(); ++i)
      variables_[i].add_(noise(variables_[i].sizes(), 100 + i), 0.1);
    for (const auto& buffer : built_.network().named_buffers())
      buffer.value().add_(noise(buffer.value().sizes(), 200), 0.1);
    variables_.push_back(batch_.images.requires_grad_());
    built_.start_statistics();
  }

  at::Tensor value(bool twice) {
    const at::Tensor y = built_.forward(batch_, {1, 10}, mode_).logits;
    const at::Tensor loss = (y * loss_ + y.square()).sum();
    return torch::autograd::grad({loss}, {batch_.images}, {}, true, twice)[0].square().sum();
  }

  void move(double h) {
    const at::NoGradGuard no_grad;
    for (uint64_t i = 0; i < variables_.size(); ++i) variables_[i].add_(direction(i), h);
  }

  double derivative() {
    value(/*twice=*/true).backward();
    double sum = 0;
    for (uint64_t i = 0; i < variables_.size(); ++i) {
      const at::Tensor& grad = variables_[i].grad();
      sum += grad.defined() ? (grad * direction(i)).sum().item<double>() : 0;
    }
    return sum;
  }

 private:
  // Weights move alike on all ranks, inputs each in a way of its own.
  at::Tensor direction(uint64_t i) const {
    const bool input = i + 1 == variables_.size();
    return noise(variables_[i].sizes(),
                 300 + i + (input ? 1000 * static_cast<uint64_t>(batch_.towers.rank()) : 0));
  }

  BuiltNetwork built_;
  Mode mode_;
  Batch batch_;
  at::Tensor loss_;
  std::vector<at::Tensor> variables_;
};

struct Derivatives {
  double by_autograd = 0, by_differences = 0;
};

Derivatives derivatives(const Json& strategy, int ranks, Mode mode) {
  Derivatives sum;
  std::mutex mutex;
  on_thread_ranks(ranks, at::kCPU, [&](World& world) {
    Penalty penalty(strategy, world, mode);
    constexpr double h = 1e-6;
    penalty.move(h);
    const double above = penalty.value(false).item<double>();
    penalty.move(-2 * h);
    const double below = penalty.value(false).item<double>();
    penalty.move(h);
    const double derivative = penalty.derivative();
    const std::lock_guard lock(mutex);
    sum.by_autograd += derivative;
    sum.by_differences += (above - below) / (2 * h);
  });
  return sum;
}

std::vector<Json> strategies() {
  std::vector<Json> all;
  for (const std::string& name : registered_names("strategy")) {
    all.push_back({{"name", name}});
    if (name == "ghost")
      all.back()["virtual_batch"] = 1;
    else if (name == "norm_batch")
      all.back()["samples"] = 4;
    else if (name == "group_norm")
      all.back()["groups"] = 2;
    else if (name == "weight_standardisation")
      all.back()["base"] = {{"name", "group_norm"}, {"groups", 2}};
  }
  for (const char* route :
       {"all_reduce", "reduce_broadcast", "host", "gather_activations", "gather_activations_host", "auto"})
    all.push_back({{"name", "sync"}, {"route", route}});
  for (const char* options :
       {R"({"name": "sync", "group_size": 2})", R"({"name": "sync", "moments": "e_x2"})",
        R"({"name": "sync", "variance": "averaged"})", R"({"name": "sync", "affine": false})",
        R"({"name": "sync", "weights": "equal"})", R"({"name": "sync", "normalise": "unbiased"})",
        R"({"name": "sync", "weights": "equal", "normalise": "unbiased", "variance": "averaged"})",
        R"({"name": "averaged", "merge": "pooled"})", R"({"name": "norm_batch", "samples": 1})",
        R"({"name": "frozen", "from_step": 5})", R"({"name": "weight_norm", "mean_only_bn": true})",
        R"({"name": "weight_norm", "mean_only_bn": true, "scope": "pooled"})",
        R"({"name": "weight_standardisation", "form": "code", "base": "sync"})",
        R"({"name": "filter_response_norm", "threshold": false})",
        R"({"name": "batch_renorm", "scope": "pooled"})"}) {
    all.push_back(Json::parse(options));
  }
  return all;
}

class SecondDerivative : public ::testing::TestWithParam<Json> {};

TEST_P(SecondDerivative, IsThatOfCentralDifferencesOrIsRefusedByName) {
  const std::string name = GetParam().at("name");
  for (const int ranks : {1, 2}) {
    for (const Mode mode : {Mode::train, Mode::evaluate_saved}) {
      SCOPED_TRACE(GetParam().dump() + (mode == Mode::train ? " trains on " : " is evaluated on ") +
                   std::to_string(ranks));
      if (mode == Mode::train && (name == "batch_renorm" || name == "mabn")) {
        try {
          derivatives(GetParam(), ranks, mode);
          FAIL() << "not refused";
        } catch (const Error& e) {
          EXPECT_EQ(std::string(e.what()).find(name), 0U) << e.what();
          EXPECT_NE(std::string(e.what()).find("differentiated again"), std::string::npos) << e.what();
        }
        continue;
      }
      const Derivatives d = derivatives(GetParam(), ranks, mode);
      EXPECT_NEAR(d.by_autograd, d.by_differences, 1e-6 * std::abs(d.by_differences));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, SecondDerivative, ::testing::ValuesIn(strategies()),
                         [](const auto& each) {
                           std::string text = std::to_string(each.index) + "_" + each.param.dump();
                           std::erase_if(text, [](char c) { return std::isalnum(c) == 0 && c != '_'; });
                           return text;
                         });

// What sync's gradient does not pass through is a constant for the second derivative, too.
TEST(SecondDerivative, TakesForConstantsWhatTheFirstDoes) {
  const at::Tensor given = noise({8, 3, 4}, 1) * 2 + 1, c = noise({8, 3, 4}, 2), scale = noise({3}, 3);
  const auto penalised = [&](const at::Tensor& x, const at::Tensor& y, const at::Tensor& weight) {
    const at::Tensor loss = (y * c + y.pow(3)).sum();
    const at::Tensor dx = torch::autograd::grad({loss}, {x}, {}, true, true)[0];
    auto gradients = torch::autograd::grad({dx.square().sum() + dx.pow(3).sum()}, {x, weight});
    gradients.push_back(dx.detach());
    return gradients;
  };
  for (const char* gradient : {"full", "own_tower", "stopped"}) {
    SCOPED_TRACE(gradient);
    const std::unique_ptr<World> world = world_of_one();
    BuiltNetwork site(resolved_strategy({{"name", "sync"}, {"gradient", gradient}, {"eps", 0.1}}),
                      {.statistics = world->statistics(), .host = world->host(), .dtype = at::kDouble},
                      [](LayerMaker& layers) { return std::make_shared<OneSite>(layers.norm({"site", 3})); });
    site.start_statistics();
    const at::Tensor x = given.clone().requires_grad_(), weight = site.network().parameters()[0];
    weight.data().copy_(scale);
    Batch batch;
    batch.images = x;
    batch.towers = Towers({3, 1, 4}, 1, 0);
    const auto ours = penalised(x, site.forward(batch, {}, Mode::train).logits, weight);

    const at::Tensor z = given.clone().requires_grad_(), gamma = scale.clone().requires_grad_();
    std::vector<at::Tensor> towers;
    for (const auto& [first, rows] : std::vector<std::pair<int64_t, int64_t>>{{0, 3}, {3, 1}, {4, 4}}) {
      const at::Tensor own = z.narrow(0, first, rows);
      const at::Tensor seen =
          std::string(gradient) == "full" ? z
          : std::string(gradient) == "stopped"
              ? z.detach()
              : at::cat({given.narrow(0, 0, first), own, given.narrow(0, first + rows, 8 - first - rows)});
      const auto mean = [](const at::Tensor& t) { return t.mean(at::IntArrayRef{0, 2}, /*keepdim=*/true); };
      const at::Tensor m = mean(seen), v = mean((seen - m).square());
      towers.push_back((own - m) * (v + 0.1).rsqrt() * gamma.view({1, 3, 1}));
    }
    const auto expected = penalised(z, at::cat(towers), gamma);
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(ours[i], expected[i], 1e-10, 1e-10)) << i;
  }
}

}  // namespace
}  // namespace bnlab
