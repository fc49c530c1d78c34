// Strategies around another one: frozen is its base up to a step and changes nothing that it froze
// afterwards; precise trains to the bit as its base and evaluates with the exact merge of its calibration
// batches.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/registry.hpp"
#include "harness/layer/layer_case.hpp"
#include "harness/support/error.hpp"
#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"
#include "tests/verify/plain_batch_norm.hpp"

namespace bnlab::wrappers_test {
namespace {

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

constexpr int64_t kTowers = 4, kSamples = 3, kChannels = 5, kSteps = 4;

at::Tensor images_of(uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  return at::randn({kTowers * kSamples, 3, 4, 4}, generator, at::TensorOptions(at::kDouble)) *
             (1 + 0.1 * static_cast<double>(seed)) +
         0.3 * static_cast<double>(seed);
}

Batch batch_of(uint64_t index, uint64_t seed, const World& world) {
  Batch batch;
  batch.towers = Towers(std::vector<int64_t>(kTowers, kSamples), world.size(), world.rank());
  batch.images = images_of(seed).narrow(0, batch.towers.local_begin(), batch.towers.local_samples());
  batch.index = index;
  return batch;
}

// A convolution, a norm, a convolution.
class SmallNetwork : public Network {
 public:
  explicit SmallNetwork(LayerMaker& layers)
      : conv_(register_module("conv", layers.conv({"conv", 3, kChannels}))),
        norm_(register_module("norm", layers.norm({"norm", kChannels, Activation::relu}))),
        last_(register_module("norm2", layers.conv({"norm2", kChannels, 2, 1, 1, 0, 1, false}))) {}
  Maps features(at::Tensor x, const Pass& pass) override {
    return {norm_->forward(conv_->forward(std::move(x), {}, pass), {}, pass)};
  }
  Outputs head(const Maps& maps, const Pass& pass) override {
    return {last_->forward(maps.front(), {}, pass)};
  }
  at::Tensor at_norm(const at::Tensor& x) { return conv_->forward(x, {}, {}); }

 private:
  std::shared_ptr<Layer> conv_, norm_, last_;
};

// Training with plain gradient descent on one rank of a world.
class Training {
 public:
  Training(const Json& strategy, World& world, int64_t steps = kSteps) : world_(world) {
    Strategy::Context context{world.statistics(), world.host()};
    context.dtype = at::kDouble;
    context.seed = 4;
    context.steps = steps;
    strategy_ = Registered<Strategy>::create(resolved_strategy(strategy), context);
    network_ = std::make_shared<SmallNetwork>(*strategy_);
  }

  at::Tensor train() {
    const Step step{steps_, kSteps};
    network_->zero_grad();
    const Batch batch = batch_of(static_cast<uint64_t>(steps_), static_cast<uint64_t>(steps_), world_);
    const at::Tensor y = strategy_->forward(*network_, batch.images, batch.pass(step, Mode::train)).logits;
    (y.square().sum() / static_cast<double>(kTowers * kSamples)).backward();
    const at::NoGradGuard no_grad;
    for (auto& entry : network_->named_parameters()) {
      at::Tensor gradient = entry.value().grad();
      world_.gradients().all_reduce(gradient, Purpose::gradients);
      if (strategy_->trainable(entry.key(), step)) entry.value().sub_(gradient, 0.05);
    }
    ++steps_;
    return y.detach();
  }

  // Outputs of an evaluation, after which training may go on.
  at::Tensor evaluate(int64_t calibration_batches = 2) {
    const at::NoGradGuard no_grad;
    Calibration calibration(calibration_batches, [this](int64_t index) {
      const auto i = static_cast<uint64_t>(index);
      forward(batch_of(i, 100 + i, world_), Mode::calibrate);
    });
    strategy_->running_statistics()->load_into_buffers({}, calibration);
    const at::Tensor y = forward(batch_of(0, 50, world_), Mode::evaluate_saved);
    shown_ = {copy("norm.running_mean"), copy("norm.running_var")};
    strategy_->running_statistics()->restore();
    return y;
  }
  const std::vector<at::Tensor>& evaluated_pair() const { return shown_; }

  at::Tensor copy(const std::string& name) const {
    const auto parameters = network_->named_parameters();
    const at::Tensor* parameter = parameters.find(name);
    return (parameter != nullptr ? *parameter : network_->named_buffers()[name]).detach().clone();
  }
  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> all;
    for (const at::Tensor& t : network_->parameters()) all.push_back(t.detach().clone());
    return all;
  }
  SmallNetwork& network() { return *network_; }
  Strategy& strategy() { return *strategy_; }

 private:
  at::Tensor forward(const Batch& batch, Mode mode) {
    return strategy_->forward(*network_, batch.images, batch.pass({steps_, kSteps}, mode)).logits;
  }

  World& world_;
  std::unique_ptr<Strategy> strategy_;
  std::shared_ptr<SmallNetwork> network_;
  int64_t steps_ = 0;
  std::vector<at::Tensor> shown_;
};

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "tensor " << i;
}

void on_ranks(int ranks, const std::function<void(World&)>& body) {
  on_thread_ranks(ranks, at::kCPU, body);
}

std::string refusal(const Json& strategy, int64_t steps) {
  std::string message;
  on_ranks(1, [&](World& world) {
    try {
      Training(strategy, world, steps);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::refused);
      message = e.what();
    }
  });
  return message;
}

TEST(Frozen, IsItsBaseUpToTheStepAndKeepsEverythingOfTheSiteAfterwards) {
  for (const char* base : {"sync", "per_tower", "every_tower", "shuffle"}) {
    SCOPED_TRACE(base);
    on_ranks(2, [&](World& world) {
      Training frozen({{"name", "frozen"}, {"base", base}, {"from_step", 2}}, world), plain(base, world);
      for (int step = 0; step < 2; ++step) EXPECT_TRUE(at::equal(frozen.train(), plain.train()));
      expect_same_bits(frozen.parameters(), plain.parameters());
      const at::Tensor conv = frozen.copy("conv.weight"), last = frozen.copy("norm2.weight");
      plain.evaluate();
      const at::Tensor weight = frozen.copy("norm.weight"), bias = frozen.copy("norm.bias");
      for (int step = 2; step < 4; ++step) {
        frozen.train();
        EXPECT_TRUE(at::equal(frozen.copy("norm.weight"), weight));
        EXPECT_TRUE(at::equal(frozen.copy("norm.bias"), bias));
        EXPECT_TRUE(at::equal(frozen.copy("norm.running_mean"), plain.evaluated_pair()[0]));
        EXPECT_TRUE(at::equal(frozen.copy("norm.running_var"), plain.evaluated_pair()[1]));
        frozen.evaluate();
        EXPECT_TRUE(at::equal(frozen.evaluated_pair()[0], plain.evaluated_pair()[0]));
      }
      EXPECT_FALSE(at::equal(frozen.copy("conv.weight"), conv));
      EXPECT_FALSE(at::equal(frozen.copy("norm2.weight"), last)) << "a site's name is not a prefix of names";
    });
  }
}

TEST(Frozen, NormalisesByTheSavedPairAndExchangesNothing) {
  on_ranks(2, [](World& world) {
    Training frozen({{"name", "frozen"}, {"base", "per_tower"}, {"from_step", 1}}, world);
    frozen.train();
    frozen.train();
    world.ledger().clear();
    const at::Tensor x = [&] {
      const at::NoGradGuard no_grad;
      return frozen.network().at_norm(batch_of(2, 2, world).images);
    }();
    const auto per_channel = [&](const char* name) { return frozen.copy(name).view({1, kChannels, 1, 1}); };
    const at::Tensor expected =
        ((x - per_channel("norm.running_mean")) / (per_channel("norm.running_var") + 1e-5).sqrt() *
             per_channel("norm.weight") +
         per_channel("norm.bias"))
            .relu();
    const at::Tensor last = at::conv2d(expected, frozen.copy("norm2.weight"), frozen.copy("norm2.bias"));
    EXPECT_TRUE(at::allclose(frozen.train(), last, 1e-12, 1e-13));
    EXPECT_EQ(world.ledger().of(Purpose::statistics).collectives, 0);
    EXPECT_EQ(world.ledger().of(Purpose::evaluation).collectives, 0);
  });
}

TEST(Frozen, FromTheStartItExchangesNothingAtAll) {
  on_ranks(2, [](World& world) {
    Training frozen({{"name", "frozen"}, {"base", "per_tower"}}, world);
    const std::vector<at::Tensor> before{frozen.copy("norm.running_mean"), frozen.copy("norm.running_var")};
    world.ledger().clear();
    frozen.train();
    EXPECT_EQ(world.ledger().of(Purpose::statistics).collectives, 0);
    EXPECT_EQ(world.ledger().of(Purpose::evaluation).collectives, 0);
    expect_same_bits(before, {frozen.copy("norm.running_mean"), frozen.copy("norm.running_var")});
  });
}

TEST(Frozen, MayGoOnTrainingWeightAndBias) {
  on_ranks(1, [](World& world) {
    Training frozen({{"name", "frozen"}, {"train_affine", true}}, world);
    const at::Tensor weight = frozen.copy("norm.weight"), mean = frozen.copy("norm.running_mean");
    frozen.train();
    EXPECT_FALSE(at::equal(frozen.copy("norm.weight"), weight));
    EXPECT_TRUE(at::equal(frozen.copy("norm.running_mean"), mean));
  });
}

TEST(Frozen, TellsThatNoStepIsFrozen) {
  on_ranks(1, [](World& world) {
    const auto notes_of = [&](int64_t from_step, int64_t steps) {
      return Training({{"name", "frozen"}, {"from_step", from_step}}, world, steps).strategy().notes();
    };
    EXPECT_TRUE(notes_of(9, 10).empty());
    EXPECT_TRUE(notes_of(10, 0).empty()) << "the length is not known";
    ASSERT_EQ(notes_of(10, 10).size(), 1u);
    EXPECT_EQ(notes_of(10, 10)[0],
              "frozen: no step is frozen, as the first would be step 10 of 10, counted from 0");
  });
}

TEST(Frozen, AFractionOfTheRunIsRoundedUpToAStep) {
  on_ranks(1, [](World& world) {
    for (const auto& [fraction, steps, first] : std::vector<std::tuple<double, int64_t, int64_t>>{
             {0.8, 10, 8}, {0.75, 5, 4}, {0, 5, 0}, {1, 5, 5}, {0.07, 100, 7}}) {
      Training frozen({{"name", "frozen"}, {"from_fraction", fraction}}, world, steps);
      EXPECT_TRUE(first == 0 || frozen.strategy().trainable("norm.weight", {first - 1, steps})) << fraction;
      EXPECT_FALSE(frozen.strategy().trainable("norm.weight", {first, steps})) << fraction;
    }
  });
}

TEST(Frozen, RefusesWhatDoesNotFit) {
  EXPECT_NE(refusal({{"name", "frozen"}, {"from_step", 1}, {"from_fraction", 0.5}}, 10).find("exclude"),
            std::string::npos);
  EXPECT_NE(refusal({{"name", "frozen"}, {"from_fraction", 0.5}}, 0).find("from_fraction"),
            std::string::npos);
  EXPECT_NE(refusal({{"name", "frozen"}, {"base", "none"}}, 10).find("none"), std::string::npos);
  EXPECT_NE(refusal({{"name", "precise"}, {"base", "group_norm"}}, 10).find("group_norm"), std::string::npos);
}

// The answer after each of them recomputes the statistics, in the middle of a step of several passes.
TEST(Precise, TrainsAsABaseWhosePassesNormaliseWithEachOther) {
  const auto outputs_of = [](const Json& strategy) {
    LayerCase c = make_case(resolved_strategy(strategy),
                            {.towers = {4}, .modes = std::vector<Mode>(6, Mode::train), .has_state = false});
    c.accumulate = 3;
    std::vector<at::Tensor> outputs;
    for (const LayerStepAnswer& step : apply_layer(c).steps) outputs.push_back(step.outputs[0]);
    return outputs;
  };
  expect_same_bits(outputs_of({{"name", "precise"}, {"base", "cmbn"}}), outputs_of({{"name", "cmbn"}}));
}

TEST(Precise, TrainsToTheBitAsItsBaseWhateverIsEvaluated) {
  for (const char* base : {"sync", "per_tower", "shuffle"}) {
    SCOPED_TRACE(base);
    on_ranks(2, [&](World& world) {
      Training precise({{"name", "precise"}, {"base", base}, {"batches", 2}}, world), plain(base, world);
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_TRUE(at::equal(precise.train(), plain.train()));
        const at::Tensor evaluated = precise.evaluate();
        EXPECT_FALSE(at::equal(evaluated, plain.evaluate()));
        expect_same_bits(precise.parameters(), plain.parameters());
      }
      precise.evaluate(/*calibration_batches=*/0);  // nothing to recompute over: the pair of training
      expect_same_bits(precise.evaluated_pair(), plain.evaluated_pair());
    });
  }
}

TEST(Precise, EvaluatesWithTheMomentsOfAllCalibrationRowsInEveryPlacement) {
  for (const char* base : {"sync", "per_tower"}) {
    for (const int ranks : {1, 2, 4}) {
      SCOPED_TRACE(std::string(base) + ", ranks " + std::to_string(ranks));
      on_ranks(ranks, [&](World& world) {
        Training precise({{"name", "precise"}, {"base", base}, {"batches", 5}}, world);
        precise.train();
        precise.evaluate();
        const at::NoGradGuard no_grad;
        const at::Tensor x =
            precise.network().at_norm(at::cat({images_of(100), images_of(101)})).transpose(0, 1).flatten(1);
        EXPECT_TRUE(at::allclose(precise.evaluated_pair()[0], x.mean(1), 1e-12, 1e-13));
        EXPECT_TRUE(at::allclose(precise.evaluated_pair()[1], x.var(1, /*unbiased=*/true), 1e-12, 1e-13));
      });
    }
  }
}

TEST(Precise, AroundFrozenEvaluatesApartAndTrainsFrozen) {
  on_ranks(2, [](World& world) {
    const Json frozen{{"name", "frozen"}, {"from_step", 1}, {"base", "per_tower"}};
    Training both({{"name", "precise"}, {"base", frozen}}, world), plain(frozen, world);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_TRUE(at::equal(both.train(), plain.train()));
      both.evaluate();
    }
  });
}

TEST(Frozen, AroundPreciseFreezesTheTrainingPair) {
  on_ranks(2, [](World& world) {
    Training both(
        {{"name", "frozen"}, {"from_step", 1}, {"base", {{"name", "precise"}, {"base", "per_tower"}}}},
        world);
    Training plain({{"name", "frozen"}, {"from_step", 1}, {"base", "per_tower"}}, world);
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_TRUE(at::equal(both.train(), plain.train()));
      both.evaluate();
    }
  });
}

TEST(Precise, StatisticsAreThoseOfAllValuesHoweverTheyAreSplit) {
  const CaseShape shape{{24}, {4, 2, 3}, {Mode::train, Mode::train}};
  for (const char* base : {"per_tower", "sync"}) {
    const LayerCase one = make_case({{"name", "precise"}, {"base", base}, {"batches", 2}}, shape);
    const at::Tensor all = rows(at::cat({one.steps[0].inputs[0], one.steps[1].inputs[0]}));
    for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{24}, {12, 12}, {5, 9, 0, 10}}) {
      const LayerCase c = dealt(one, sizes);
      for (const int ranks : {1, 2}) {
        if (sizes.size() % static_cast<size_t>(ranks) == 0) {
          const LayerStepAnswer answer = apply_layer(c, ranks).steps.back();
          EXPECT_LT(relative_error(answer.running_mean, all.mean(1)), kExact) << base;
          EXPECT_LT(relative_error(answer.running_var, all.var(1, true)), kExact) << base;
        }
      }
    }
  }
}

TEST(Frozen, FromTheStartItIsCloseToTheIdentityAndStaysSo) {
  LayerCase c = make_case("frozen", {{3, 2}, {4, 2, 3}, {Mode::train, Mode::train}});
  c.weight.reset();
  c.bias.reset();
  c.running_mean.reset();
  c.running_var.reset();
  const LayerAnswer answer = apply_layer(c);
  EXPECT_LT(relative_error(at::cat(answer.steps[1].outputs), at::cat(c.steps[1].inputs)), 1e-5);
  EXPECT_TRUE(at::equal(answer.steps[1].running_mean, at::zeros({4}, at::kDouble)));
  EXPECT_TRUE(at::equal(answer.steps[1].running_var, at::ones({4}, at::kDouble)));
  EXPECT_TRUE(answer.steps[1].weight_gradient.defined());
}

}  // namespace
}  // namespace bnlab::wrappers_test
