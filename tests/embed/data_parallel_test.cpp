// DataParallel on two ranks, and where its layers meet those of the other rank.
#include <sstream>

#include "two_ranks.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

at::Tensor loss_of(nn::Sequential& net, const at::Tensor& x, int64_t first, int64_t end) {
  const at::Tensor labels = at::arange(x.size(0)).remainder(2);
  return torch::cross_entropy_loss(net->forward(x.slice(0, first, end)), labels.slice(0, first, end));
}

at::Tensor flat_parameters(const nn::Sequential& net) {
  std::vector<at::Tensor> all;
  for (const at::Tensor& p : net->parameters()) all.push_back(p.detach().flatten());
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
      for (at::Tensor& p : net->parameters()) p.fill_(0.5);
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
  net->zero_grad(/*set_to_none=*/false);
  strict.accumulate(net->idle(at::ones({1, 3})).sum());
  EXPECT_SAYS(strict.backward(net->used(at::ones({1, 3})).sum()), "has not reached idle.weight, idle.bias");
  net->zero_grad();
  DataParallel lenient(*net, Ranks(), {.unused_parameters = true});
  lenient.backward(net->used(at::ones({1, 3})).sum());
  EXPECT_FALSE(net->idle->weight.grad().defined());
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
      if (s == 0) frozen = net->named_parameters()["1.weight"].detach().clone();
    }
    EXPECT_EQ(difference(net->named_parameters()["1.weight"], frozen), 0);
    return flat_parameters(net);
  });
  EXPECT_LT(difference(weights.first, weights.second), 1e-15);
}

TEST(DataParallel, CountsBothPassesOfALayerThatStandsTwice) {
  const auto statistics = [](const Ranks& ranks, int64_t towers) {
    const nn::BatchNorm2d norm = plain_norm();
    nn::Sequential net(norm, nn::ReLU(), norm);
    convert(*net, BatchNormOptions().strategy("averaged").ranks(ranks).towers_per_rank(towers));
    DataParallel parallel(*net, ranks);
    const auto [first, end] = ranks.share(8);
    parallel.backward(net->forward(batch(8, 0).slice(0, first, end)).square().sum());
    const auto buffers = net->named_buffers();
    EXPECT_EQ(buffers["0.num_batches_tracked"].item<int64_t>(), 2);
    return at::cat({buffers["0.running_mean"], buffers["0.running_var"]});
  };
  const auto [first, second] = on_two_ranks([&](const Ranks& ranks) { return statistics(ranks, 1); });
  EXPECT_EQ(difference(first, second), 0);
  EXPECT_LT(difference(first, statistics(Ranks(), 2)), 1e-12);
}

// Where layers meet the other rank

// Two norms that do not depend on each other's ranks but for what the strategy says.
nn::Sequential two_norms(const BatchNormOptions& options) {
  nn::Sequential net(BatchNorm(BatchNormOptions(options).name("encoder.norm")),
                     BatchNorm(BatchNormOptions(options).name("decoder.norm")));
  net->to(at::kDouble);
  return net;
}

std::vector<at::Tensor> buffers_of(const nn::Sequential& net) {
  std::vector<at::Tensor> buffers;
  for (const at::Tensor& buffer : net->buffers()) buffers.push_back(buffer.detach().to(at::kDouble).clone());
  return buffers;
}

// The buffers after each of four steps: of even and uneven batches, one that the other rank has none of, two
// passes before one backward pass, an accumulated pass, and one without gradients.
std::vector<at::Tensor> buffers_of_training(const Ranks& ranks, const BatchNormOptions& options,
                                            bool joined) {
  nn::Sequential net = two_norms(BatchNormOptions(options).ranks(ranks));
  std::optional<DataParallel> parallel;
  if (joined) parallel.emplace(*net, ranks);
  std::vector<at::Tensor> seen;
  const int64_t cuts[] = {4, 7, 8, 5};  // rows of rank 0, of 8
  for (uint64_t s = 0; s < 4; ++s) {
    const int64_t first = ranks.rank() == 0 ? 0 : cuts[s], end = ranks.rank() == 0 ? cuts[s] : 8;
    const auto loss = [&](uint64_t seed) {
      return net->forward(batch(8, seed).slice(0, first, end)).square().sum();
    };
    if (s == 1) {
      const at::Tensor accumulated = loss(20);
      joined ? parallel->accumulate(accumulated) : accumulated.backward();
    } else if (s == 3) {
      const at::NoGradGuard no_grad;
      loss(30);
    }
    const at::Tensor last = s == 2 ? loss(s) + loss(40) : loss(s);
    joined ? parallel->backward(last, end - first) : last.backward();
    const std::vector<at::Tensor> now = buffers_of(net);
    seen.insert(seen.end(), now.begin(), now.end());
  }
  return seen;
}

TEST(DataParallelMeets, AndLeavesTheBuffersThatLayersLeaveWhichMeetInEveryPass) {
  for (const char* strategy :
       {"per_tower", "averaged", "every_tower", "sync", R"({"name": "ghost", "virtual_batch": 1})",
        R"({"name": "batch_renorm", "schedule": null})",
        R"({"name": "frozen", "base": "averaged", "from_step": 2, "train_affine": true})",
        R"({"name": "precise", "base": "averaged"})"}) {
    for (const std::optional<double> momentum : {std::optional(0.1), std::optional<double>()}) {
      for (const int towers : {1, 2}) {
        const BatchNormOptions options =
            BatchNormOptions(kChannels).strategy(strategy).momentum(momentum).towers_per_rank(towers);
        const auto run = [&](bool joined) {
          return on_two_ranks(
              [&](const Ranks& ranks) { return buffers_of_training(ranks, options, joined); });
        };
        const auto [first, second] = run(true);
        const auto [expected, also] = run(false);
        ASSERT_EQ(first.size(), expected.size());
        for (size_t i = 0; i < first.size(); ++i) {
          EXPECT_LT(difference(first[i], expected[i]), 1e-12)
              << strategy << ", momentum " << momentum.value_or(-1) << ", " << towers << " towers, tensor "
              << i;
          EXPECT_EQ(difference(first[i], second[i]), 0) << strategy << ", tensor " << i;
        }
      }
    }
  }
}

TEST(DataParallelMeets, OnceInAStepForAllLayersThatExchangeNothing) {
  struct Case {
    const char* strategy;
    bool equal;
    int64_t in_forward, control, merges;  // exchanges
  };
  for (const Case& each :
       {Case{"per_tower", false, 0, 1, 1}, Case{"averaged", false, 0, 1, 1}, Case{"averaged", true, 0, 1, 1},
        Case{"group_norm", false, 0, 1, 0}, Case{"sync", false, 4, 3, 0}, Case{"sync", true, 2, 1, 0}}) {
    on_two_ranks([&](const Ranks& ranks) {
      nn::Sequential net = two_norms(BatchNormOptions(kChannels)
                                         .strategy(each.strategy == std::string("group_norm")
                                                       ? R"({"name": "group_norm", "groups": 3})"
                                                       : each.strategy)
                                         .ranks(ranks)
                                         .equal_batches(each.equal));
      DataParallel parallel(*net, ranks);
      const auto before = ranks.traffic();
      const auto control = ranks.traffic("control"), evaluation = ranks.traffic("evaluation");
      const at::Tensor loss = net->forward(batch(4, 0)).square().sum();
      EXPECT_EQ(ranks.traffic().exchanges - before.exchanges, each.in_forward) << each.strategy;
      parallel.backward(loss, 4);
      EXPECT_EQ(ranks.traffic("control").exchanges - control.exchanges, each.control) << each.strategy;
      EXPECT_EQ(ranks.traffic("control").bytes - control.bytes, 40 * each.control) << each.strategy;
      EXPECT_EQ(ranks.traffic("evaluation").exchanges - evaluation.exchanges, each.merges) << each.strategy;
      EXPECT_EQ(ranks.traffic("evaluation").bytes - evaluation.bytes, each.merges * 2 * 16 * kChannels);
      return 0;
    });
  }
}

TEST(DataParallelMeets, SoThatASaveBeforeTheBackwardPassIsThatOfBeforeTheStep) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = two_norms(BatchNormOptions(kChannels).ranks(ranks));
    DataParallel parallel(*net, ranks);
    parallel.backward(net->forward(batch(4, ranks.rank())).square().sum(), 4);
    const std::vector<at::Tensor> before = buffers_of(net);
    const at::Tensor loss = net->forward(batch(4, 2 + ranks.rank())).square().sum();
    std::stringstream file;
    torch::save(net, file);
    nn::Sequential saved = two_norms(BatchNormOptions(kChannels));
    torch::load(saved, file);
    const std::vector<at::Tensor> in_file = buffers_of(saved);
    parallel.backward(loss, 4);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(difference(in_file[i], before[i]), 0) << i;
    EXPECT_GT(difference(buffers_of(net).front(), before.front()), 1e-3);
    EXPECT_EQ(net->named_buffers()["1.num_batches_tracked"].item<int64_t>(), 2);
    return 0;
  });
}

TEST(DataParallelMeets, AndWhatIsWrittenBeforeTheBackwardPassCounts) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = two_norms(BatchNormOptions(kChannels).strategy("averaged").ranks(ranks));
    const std::vector<at::Tensor> early = buffers_of(net);
    DataParallel parallel(*net, ranks);
    parallel.backward(net->forward(batch(4, 0)).square().sum(), 4);
    const at::Tensor loss = net->forward(batch(4, 1)).square().sum();
    for (size_t i = 0; i < early.size(); ++i) net->buffers()[i].copy_(early[i]);
    parallel.backward(loss, 4);
    const std::vector<at::Tensor> after = buffers_of(net);
    for (size_t i = 0; i < early.size(); ++i) EXPECT_EQ(difference(after[i], early[i]), 0) << i;
    parallel.backward(net->forward(batch(4, 2)).square().sum(), 4);
    EXPECT_EQ(net->named_buffers()["0.num_batches_tracked"].item<int64_t>(), 1);
    return 0;
  });
}

TEST(DataParallelMeets, AndNamesThePlacesOfRanksThatHaveParted) {
  const auto parted = [](const char* strategy,
                         const std::function<at::Tensor(nn::Sequential&, int rank)>& forward) {
    return on_two_ranks([&](const Ranks& ranks) {
      nn::Sequential net = two_norms(BatchNormOptions(kChannels).strategy(strategy).ranks(ranks));
      DataParallel parallel(*net, ranks, {.unused_parameters = true});
      return refusal([&] { parallel.backward(forward(net, ranks.rank()).sum(), 2); });
    });
  };
  const auto first = [](nn::Sequential& net) { return net->ptr<BatchNormImpl>(0)->forward(batch(2, 0)); };
  const auto second = [](nn::Sequential& net) { return net->ptr<BatchNormImpl>(1)->forward(batch(2, 0)); };
  const auto other = parted(
      "per_tower", [&](nn::Sequential& net, int rank) { return rank == 0 ? first(net) : second(net); });
  const auto fewer = parted("per_tower", [&](nn::Sequential& net, int rank) {
    const at::Tensor y = first(net);
    return rank == 0 ? y + second(net) : y;
  });
  const auto missing = parted(
      "sync", [&](nn::Sequential& net, int rank) { return rank == 0 ? first(net) : net->parameters()[0]; });
  for (const auto& [messages, text] :
       {std::pair(other,
                  "rank 0 is at encoder.norm (training step 0), rank 1 is at decoder.norm (training step 0)"),
        std::pair(fewer, "rank 0 is at decoder.norm (training step 0), rank 1 is at DataParallel::backward"),
        std::pair(missing,
                  "rank 0 is at encoder.norm (training step 0), rank 1 is at DataParallel::backward")}) {
    for (const std::string& message : {messages.first, messages.second})
      EXPECT_NE(message.find(text), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace bnlab
