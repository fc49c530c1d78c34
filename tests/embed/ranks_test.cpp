// BatchNorm and DataParallel on ranks that hand in a process group: threads of this process over Gloo.
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <cstdlib>
#include <future>
#include <utility>

#include "nets.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

Group group_of(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size) {
  auto options = c10d::ProcessGroupGloo::Options::create();
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  options->timeout = std::chrono::seconds(20);
  const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
  auto group = c10::make_intrusive<c10d::ProcessGroup>(rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::GLOO, gloo);
  group->setDefaultBackend(c10d::ProcessGroup::GLOO);
  return group;
}

// What `body` returns on each of two ranks.
template <class Body>
auto on_two_ranks(const Body& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto on_rank = [&](int rank) { return body(Ranks(group_of(store, rank, 2))); };
  auto other = std::async(std::launch::async, on_rank, 1);
  auto first = on_rank(0);
  return std::pair(std::move(first), other.get());
}

BatchNormOptions synced(const Ranks& ranks) {
  return BatchNormOptions(kChannels).strategy("sync").ranks(ranks);
}

// A step of `layer` on this rank's rows of x.
template <class Layer>
Trained train_part(Layer& layer, const at::Tensor& x, int64_t first, int64_t end) {
  return train(layer, x.slice(0, first, end), batch(x.size(0), 99).slice(0, first, end));
}

TEST(RanksHandedIn, TogetherAreBatchNormOfTheWholeBatchHoweverUneven) {
  for (const int64_t here : {4, 5, 8, 0}) {  // rows of rank 0, of 8
    for (const char* strategy : {"sync", R"({"name": "sync", "route": "all_reduce"})"}) {
      const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
        BatchNorm layer = norm_of(synced(ranks).strategy(strategy));
        Trained trained;
        for (uint64_t s = 0; s < 2; ++s) {
          trained = ranks.rank() == 0 ? train_part(layer, batch(8, s), 0, here)
                                      : train_part(layer, batch(8, s), here, 8);
        }
        return std::pair(trained, layer->running_var.clone());
      });
      nn::BatchNorm2d plain = plain_norm();
      train(plain, batch(8, 0), batch(8, 99));
      const Trained whole = train(plain, batch(8, 1), batch(8, 99));
      EXPECT_LT(difference(at::cat({first.first.y, second.first.y}), whole.y), 1e-10);
      EXPECT_LT(difference(at::cat({first.first.dx, second.first.dx}), whole.dx), 1e-10);
      EXPECT_LT(difference(first.first.dweight + second.first.dweight, whole.dweight), 1e-9);
      EXPECT_LT(difference(first.second, plain->running_var), 1e-10);
      EXPECT_EQ(difference(first.second, second.second), 0);
    }
  }
}

TEST(RanksHandedIn, MayHaveImagesOfDifferentSizes) {
  for (const char* strategy : {"sync", R"({"name": "sync", "route": "all_reduce"})"}) {
    const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
      BatchNorm layer = norm_of(synced(ranks).strategy(strategy));
      const at::Tensor y = layer->forward(batch(2, 0, /*side=*/ranks.rank() == 0 ? 5 : 9));
      return std::pair(y.detach(), layer->running_var.clone());
    });
    const auto flat = [](const at::Tensor& x) { return x.movedim(1, 3).reshape({-1, kChannels}); };
    const at::Tensor all = at::cat({flat(batch(2, 0, 5)), flat(batch(2, 0, 9))});
    const at::Tensor expected = at::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    EXPECT_LT(difference(at::cat({flat(first.first), flat(second.first)}), expected), 1e-10) << strategy;
    EXPECT_LT(difference(first.second, 0.9 + 0.1 * all.var(0, true)), 1e-10);
  }
}

TEST(RanksHandedIn, HoldTheMergedStatisticsAfterEveryStep) {
  for (const char* strategy : {"per_tower", "averaged", "every_tower"}) {
    const auto run = [&](const Ranks& ranks, bool current) {
      BatchNorm layer = norm_of(synced(ranks)
                                    .strategy(strategy)
                                    .towers_per_rank(ranks.size() == 2 ? 1 : 2)
                                    .always_current(current));
      for (uint64_t s = 0; s < 2; ++s) {
        train_part(layer, batch(8, s), ranks.share(8).first, ranks.share(8).second);
      }
      const at::Tensor in_training = layer->running_var.clone();
      layer->eval();
      return std::pair(in_training, layer->running_var.clone());
    };
    const auto one = run(Ranks(), true);
    const auto [first, second] = on_two_ranks([&](const Ranks& ranks) { return run(ranks, true); });
    EXPECT_LT(difference(first.first, one.first), 1e-12) << strategy;
    EXPECT_EQ(difference(first.first, second.first), 0) << strategy;
    const auto [late, later] = on_two_ranks([&](const Ranks& ranks) { return run(ranks, false); });
    EXPECT_GT(difference(late.first, one.first), 1e-3) << strategy;
    EXPECT_LT(difference(later.second, one.second), 1e-12) << strategy;
  }
}

TEST(RanksHandedIn, AtDifferentLayersSayWhichAndEvaluationExchangesNothing) {
  const auto messages = on_two_ranks([](const Ranks& ranks) {
    BatchNorm first(synced(ranks).name("encoder.norm")), second(synced(ranks).name("decoder.norm"));
    first->eval();
    const auto before = ranks.traffic().exchanges;
    if (ranks.rank() == 0) {
      first->forward(at::rand({2, 3, 4, 4}));
    }
    EXPECT_EQ(ranks.traffic().exchanges, before);
    first->train();
    return refusal([&] { (ranks.rank() == 0 ? first : second)->forward(at::rand({2, 3, 4, 4})); });
  });
  for (const std::string& message : {messages.first, messages.second}) {
    EXPECT_NE(message.find("rank 0 is at encoder.norm (training step 0), rank 1 is at decoder.norm"),
              std::string::npos)
        << message;
  }
}

TEST(RanksHandedIn, ThatHaveGoneAreAnErrorThatNamesRankAndLayer) {
  const auto [message, none] = on_two_ranks([](const Ranks& ranks) {
    BatchNorm layer(synced(ranks).name("encoder.norm"));
    return ranks.rank() == 1 ? std::string() : refusal([&] { layer->forward(at::rand({2, 3, 4, 4})); });
  });
  EXPECT_EQ(message.find("rank 0 of 2, layer encoder.norm: "), 0U) << message;
  EXPECT_NE(message.find("another rank may have died"), std::string::npos) << message;
}

// What the check costs: an exchange of 40 bytes a layer and step, beside the two of sync.
TEST(RanksHandedIn, PayFortyBytesALayerAndStepForSizesAndSites) {
  for (const bool equal : {false, true}) {
    const auto [control, statistics] =
        on_two_ranks([&](const Ranks& ranks) {
          BatchNorm layer = norm_of(synced(ranks).equal_batches(equal));
          train(layer, batch(4, 0), batch(4, 1));
          return std::pair(ranks.traffic("control"), ranks.traffic("statistics"));
        }).first;
    EXPECT_EQ(control.exchanges, equal ? 0 : 1);
    EXPECT_EQ(control.bytes, equal ? 0 : 40);
    EXPECT_EQ(statistics.exchanges, 2);
  }
}

TEST(Ranks, AloneShareAllRowsAndExchangeNothing) {
  const Ranks ranks;
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_EQ(ranks.share(5), (std::pair<int64_t, int64_t>{0, 5}));
  EXPECT_TRUE(ranks.any(true));
  EXPECT_FALSE(ranks.any(false));
}

nn::Sequential small_net(const Ranks& ranks, uint64_t seed, const std::string& strategy = "sync") {
  torch::manual_seed(seed);
  nn::Sequential net(nn::Conv2d(nn::Conv2dOptions(kChannels, 4, 3).bias(false)),
                     BatchNorm(BatchNormOptions(4).strategy(strategy).ranks(ranks).relu(true)),
                     nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(4, 2));
  net->to(at::kDouble);
  return net;
}

at::Tensor loss_of(nn::Sequential& net, const at::Tensor& x, int64_t first, int64_t end) {
  const at::Tensor labels = at::arange(x.size(0)).remainder(2);
  return torch::cross_entropy_loss(net->forward(x.slice(0, first, end)), labels.slice(0, first, end));
}

at::Tensor flat_parameters(const nn::Sequential& net) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : net->parameters()) {
    all.push_back(p.detach().flatten());
  }
  return at::cat(all);
}

// Weights after three steps. rows: of rank 0, per step, of 8.
at::Tensor trained_alone() {
  nn::Sequential net = small_net(Ranks(), 0);
  torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (uint64_t s = 0; s < 3; ++s) {
    sgd.zero_grad();
    loss_of(net, batch(8, s), 0, 8).backward();
    sgd.step();
  }
  return flat_parameters(net);
}

TEST(DataParallel, OnTwoRanksTrainsAsOneProcessDoesHoweverUnevenTheBatches) {
  const at::Tensor alone = trained_alone();
  for (const bool unused : {false, true}) {
    const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
      nn::Sequential net = [&] {
        static std::mutex one_generator;
        const std::lock_guard lock(one_generator);
        return small_net(ranks, static_cast<uint64_t>(ranks.rank()));  // rank 0's weights count
      }();
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
      const int64_t cuts[] = {4, 7, 8};
      for (uint64_t s = 0; s < 3; ++s) {
        sgd.zero_grad();
        const int64_t first_row = ranks.rank() == 0 ? 0 : cuts[s], end = ranks.rank() == 0 ? cuts[s] : 8;
        parallel.backward(loss_of(net, batch(8, s), first_row, end), end - first_row);
        sgd.step();
      }
      return flat_parameters(net);
    });
    EXPECT_LT(difference(first, alone), 1e-10);
    EXPECT_LT(difference(first, second), 1e-15);
  }
}

TEST(DataParallel, AccumulatesWithoutExchangingGradients) {
  const auto gradients = [](const Ranks& ranks, bool accumulates) {
    nn::Sequential net(nn::Linear(kChannels, 2));
    net->to(at::kDouble);
    {
      const at::NoGradGuard none;
      for (at::Tensor& p : net->parameters()) {
        p.fill_(0.5);
      }
    }
    DataParallel parallel(*net, ranks);
    const auto loss = [&](uint64_t seed) {
      return net->forward(batch(2, seed + ranks.rank()).mean({2, 3})).square().sum();
    };
    const int64_t before = ranks.traffic("gradients").exchanges;
    if (accumulates) {
      parallel.accumulate(loss(0));
      EXPECT_EQ(ranks.traffic("gradients").exchanges, before);
      parallel.backward(loss(10));
    } else {
      parallel.backward(loss(0) + loss(10));
    }
    return net->parameters()[0].grad().clone();
  };
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) { return gradients(ranks, true); });
  const auto [together, also] = on_two_ranks([&](const Ranks& ranks) { return gradients(ranks, false); });
  EXPECT_LT(difference(first, together), 1e-12);
  EXPECT_EQ(difference(first, second), 0);
}

TEST(DataParallel, NamesTheParametersThatABackwardPassHasNotReached) {
  nn::Linear used(3, 2);
  struct TwoImpl : nn::Module {
    TwoImpl() { register_module("used", used), register_module("idle", idle); }
    nn::Linear used{3, 2}, idle{3, 2};
  };
  const auto net = std::make_shared<TwoImpl>();
  DataParallel strict(*net, Ranks());
  EXPECT_SAYS(strict.backward(net->used(at::ones({1, 3})).sum()), "has not reached idle.weight, idle.bias");
  DataParallel lenient(*net, Ranks(), {.unused_parameters = true});
  lenient.backward(net->used(at::ones({1, 3})).sum());
  EXPECT_EQ(net->idle->weight.grad().abs().sum().item<float>(), 0);
}

TEST(DataParallel, GoesOnWhereALayerFreezesItsParameters) {
  const auto weights = on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net(ranks, 0, R"({"name": "frozen", "from_step": 1})");
    DataParallel parallel(*net, ranks);
    torch::optim::SGD sgd(net->parameters(), 0.1);
    at::Tensor frozen;
    for (uint64_t s = 0; s < 3; ++s) {
      sgd.zero_grad();
      const auto [first, end] = ranks.share(8);
      parallel.backward(loss_of(net, batch(8, s), first, end));
      sgd.step();
      if (s == 0) {
        frozen = net->named_parameters()["1.weight"].detach().clone();
      }
    }
    EXPECT_EQ(difference(net->named_parameters()["1.weight"], frozen), 0);
    return flat_parameters(net);
  });
  EXPECT_LT(difference(weights.first, weights.second), 1e-15);
}

TEST(Checkpoint, RoundTripsAndNamesWhatDoesNotFit) {
  const std::string file = ::testing::TempDir() + "bnlab_state.pt";
  nn::Sequential net = small_net(Ranks(), 0), other = small_net(Ranks(), 1);
  net->forward(batch(4, 0));
  save_state_dict(*net, file);
  load_state_dict(*other, file);
  net->eval();
  other->eval();
  EXPECT_EQ(difference(net->forward(batch(2, 5)), other->forward(batch(2, 5))), 0);
  nn::Sequential wide(nn::Conv2d(kChannels, 8, 3));
  EXPECT_SAYS(load_state_dict(*wide, file),
              "0.weight [8, 3, 3, 3] (there it is [4, 3, 3, 3]), 0.bias [8] (missing)");
  EXPECT_SAYS(load_state_dict(*wide, "/no/such"), "cannot be read");
}

}  // namespace
}  // namespace bnlab
