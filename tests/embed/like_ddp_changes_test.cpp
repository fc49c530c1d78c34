// DataParallel beside DistributedDataParallel where not all is there: parameters that a pass does not reach,
// modules that change, uneven batches, passes that fail.
#include <sstream>

#include "like_ddp.hpp"

namespace bnlab::like_ddp_test {
namespace {

// Parameters that a pass does not reach

TEST(LikeDdp, NamesParametersThatNoRankHasReached) {
  expect_both_say("this backward pass has not reached second.weight, second.bias", [](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks);
    parallel.backward(net->loss(0, rows_of(ranks)));
  });
}

TEST(LikeDdp, GoesOnAfterParametersWereNotReached) {
  const auto loss = [](Branches& net, const at::Tensor& x) {
    return net->loss(2, x) / static_cast<double>(x.size(0));
  };
  expect_same_on_both(gradients_alone<Branches>(seeded(Branches()), loss), [&](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks);
    EXPECT_NE(refusal([&] { parallel.backward(net->loss(0, rows_of(ranks))); }), "");
    EXPECT_FALSE(net->first->weight.grad().defined());
    parallel.backward(loss(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, TellsAllRanksThatOneHasNotReachedAParameter) {
  const auto [first, second] = on_two_ranks([](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks);
    const std::string told =
        refusal([&] { parallel.backward(net->loss(ranks.rank() == 0 ? 0 : 2, rows_of(ranks))); });
    parallel.backward(net->loss(2, rows_of(ranks)));  // and goes on
    return told;
  });
  EXPECT_NE(first.find("has not reached second.weight"), std::string::npos) << first;
  EXPECT_NE(second.find("rank 1 of 2, in the backward pass: it has failed on rank 0"), std::string::npos)
      << second;
}

TEST(LikeDdp, AParameterThatNoRankHasReachedHasNoGradientAndDoesNotMove) {
  on_two_ranks([](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks, {.unused_parameters = true});
    torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.1));
    const at::Tensor before = net->second->weight.detach().clone();
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      parallel.backward(net->loss(0, rows_of(ranks)));
      sgd.step();
      EXPECT_FALSE(net->second->weight.grad().defined());
    }
    EXPECT_EQ(difference(net->second->weight, before), 0);
    EXPECT_GT(net->first->weight.grad().abs().sum().item<double>(), 0);
    return 0;
  });
}

TEST(LikeDdp, AloneAParameterThatIsNotReachedHasNoGradient) {
  Branches net = seeded(Branches());
  DataParallel parallel(*net, Ranks(), {.unused_parameters = true});
  parallel.backward(net->loss(0, all_rows()));
  EXPECT_FALSE(net->second->weight.grad().defined());
}

TEST(LikeDdp, AParameterThatNoRankHasReachedKeepsTheGradientThatItHad) {
  on_two_ranks([](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks, {.unused_parameters = true});
    parallel.backward(net->loss(1, rows_of(ranks)));
    const at::Tensor before = net->second->weight.grad().clone();
    parallel.backward(net->loss(0, rows_of(ranks)));
    EXPECT_LT(difference(net->second->weight.grad(), before), 1e-12);
    return 0;
  });
}

TEST(LikeDdp, RanksThatTakeDifferentBranchesAverageWithZero) {
  Branches alone = seeded(Branches());
  ((alone->loss(0, all_rows().slice(0, 0, 3)) + alone->loss(1, all_rows().slice(0, 3, 6))) / 2).backward();
  expect_same_on_both(gradients(*alone), [](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks, {.unused_parameters = true});
    parallel.backward(net->loss(ranks.rank(), rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, BranchesMayChangeFromStepToStep) {
  on_two_ranks([](const Ranks& ranks) {
    Branches net = seeded(Branches());
    DataParallel parallel(*net, ranks, {.unused_parameters = true});
    for (const int which : {0, 1, 2, 1}) {
      net->zero_grad();
      parallel.backward(net->loss(which, rows_of(ranks)));
      EXPECT_EQ(net->first->weight.grad().defined(), which != 1);
      EXPECT_EQ(net->second->weight.grad().defined(), which != 0);
    }
    return 0;
  });
}

TEST(LikeDdp, WhereAllAreReachedUnusedParametersChangesNothing) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks, {.unused_parameters = true});
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, ParametersThatAreFrozenFromTheStartAreLeftAlone) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    net->parameters()[0].requires_grad_(false);
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    EXPECT_FALSE(net->parameters()[0].grad().defined());
    EXPECT_TRUE(net->parameters()[1].grad().defined());
    return 0;
  });
}

// Modules that change after construction

TEST(LikeDdp, FollowsWhatIsFrozenAndThawedLater) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    for (const bool trained : {true, false, true}) {
      net->zero_grad();
      net->parameters()[0].requires_grad_(trained);
      parallel.backward(loss_of(net, rows_of(ranks)));
      EXPECT_EQ(net->parameters()[0].grad().defined(), trained);
    }
    return gradients(*net);
  });
}

TEST(LikeDdp, FollowsAModuleToAnotherType) {
  for (const bool unused : {false, true}) {
    expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [&](const Ranks& ranks) {
      nn::Sequential net = small_net();
      net->to(at::kFloat);
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      parallel.backward(net->forward(rows_of(ranks).to(at::kFloat)).square().mean());
      net->zero_grad();
      seeded(net);
      parallel.backward(loss_of(net, rows_of(ranks)));
      EXPECT_EQ(net->parameters()[0].grad().scalar_type(), at::kDouble);
      return gradients(*net);
    });
  }
}

TEST(LikeDdp, FollowsLayersThatComeLater) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    net->push_back(nn::Linear(2, 2));
    net->zero_grad();
    seeded(net);
    parallel.backward(loss_of(net, rows_of(ranks)));
    const at::Tensor all = ranks.sum(net->parameters()[4].grad());
    EXPECT_LT(difference(all, net->parameters()[4].grad() * 2), 1e-12);
    return 0;
  });
}

// Uneven inputs, accumulation

TEST(LikeDdp, AccumulateIsNoSync) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of) * 2, [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    const int64_t before = ranks.traffic().exchanges;
    parallel.accumulate(loss_of(net, rows_of(ranks)));
    EXPECT_EQ(ranks.traffic().exchanges, before);
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, AccumulatedGradientsAreEachRanksOwnUntilThen) {
  const auto [first, second] = on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.accumulate(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
  EXPECT_GT(difference(first, second), 1e-3);
}

TEST(LikeDdp, RowsWeighUnevenBatches) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    const int64_t first = ranks.rank() == 0 ? 0 : 5, end = ranks.rank() == 0 ? 5 : 6;
    parallel.backward(loss_of(net, all_rows().slice(0, first, end)), end - first);
    return gradients(*net);
  });
}

TEST(LikeDdp, ARankWithoutRowsTakesPart) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    const int64_t end = ranks.rank() == 0 ? 6 : 0;
    parallel.backward(loss_of(net, all_rows().slice(0, 0, end)), end);
    return gradients(*net);
  });
}

TEST(LikeDdp, NoRankWithRowsIsAStepOfZero) {
  expect_same_on_both(at::zeros_like(flat(small_net()->parameters())), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, all_rows().slice(0, 0, 0)), 0);
    return gradients(*net);
  });
}

TEST(LikeDdp, UnevenEpochsEndTogether) {
  const auto [first, second] = on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    int64_t steps = 0;
    for (int64_t left = ranks.rank() == 0 ? 3 : 1; ranks.any(left > 0); --left, ++steps) {
      const at::Tensor x = all_rows().slice(0, 0, left > 0 ? 2 : 0);
      parallel.backward(loss_of(net, x), x.size(0));
    }
    return steps;
  });
  EXPECT_EQ(first, 3);
  EXPECT_EQ(second, 3);
}

TEST(LikeDdp, ARankThatComesNoMoreIsAnErrorForTheOthers) {
  const auto [first, second] = on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    return ranks.rank() == 1 ? "" : refusal([&] { parallel.backward(loss_of(net, rows_of(ranks))); });
  });
  EXPECT_NE(first.find("rank 0 of 2, in the backward pass: lost contact"), std::string::npos) << first;
}

// Buffers, checkpoints, modes

TEST(LikeDdp, BuffersAreSentWhenTheProgramSays) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = seeded(nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4)));
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    const at::Tensor mean = net->named_buffers()["1.running_mean"], own = mean.clone();
    EXPECT_GT(difference(ranks.sum(own), own * 2), 1e-3);
    parallel.broadcast();
    EXPECT_EQ(difference(ranks.sum(mean), mean * 2), 0);
    return 0;
  });
}

TEST(LikeDdp, NamesInCheckpointsAreTheModulesOwn) {
  nn::Sequential net = small_net(), other = small_net(9);
  DataParallel parallel(*net, Ranks());
  const std::string file = ::testing::TempDir() + "like_ddp.pt";
  save_state_dict(*net, file);
  load_state_dict(*other, file);
  EXPECT_EQ(difference(flat(net->parameters()), flat(other->parameters())), 0);
  EXPECT_EQ(net->named_parameters().keys().front(), "0.weight");
}

TEST(LikeDdp, ACheckpointThatRank0HasReadIsSentToTheOthers) {
  expect_same_on_both(flat(small_net(9)->parameters()), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    if (ranks.rank() == 0) {
      std::stringstream file;
      torch::save(small_net(9), file);
      torch::load(net, file);
    }
    parallel.broadcast();
    return flat(net->parameters());
  });
}

TEST(LikeDdp, ACloneIsAModuleOfItsOwn) {
  nn::Sequential net = small_net();
  DataParallel parallel(*net, Ranks());
  const auto copy = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
  parallel.backward(loss_of(net, all_rows()));
  EXPECT_FALSE(copy->parameters()[0].grad().defined());
}

TEST(LikeDdp, TrainingAndEvaluationAreTheModulesOwn) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = seeded(nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4)));
    DataParallel parallel(*net, ranks);
    net->eval();
    const at::NoGradGuard no_grad;
    const int64_t before = ranks.traffic().exchanges;
    net->forward(ranks.rank() == 0 ? all_rows() : all_rows().slice(0, 0, 0));
    EXPECT_EQ(ranks.traffic().exchanges, before);
    return 0;
  });
}

// A pass that fails on one rank

// Steps, in the second of which rank 1 throws between forward and backward and goes on, a step ahead: what
// the first that failed has said, and how many have failed.
std::pair<std::string, int> failures(const Ranks& ranks, const BatchNormOptions& options) {
  nn::Sequential net(BatchNorm(BatchNormOptions(options).ranks(ranks).name("first")),
                     BatchNorm(BatchNormOptions(options).ranks(ranks).name("second")));
  net->to(at::kDouble);
  DataParallel parallel(*net, ranks);
  std::pair<std::string, int> failed{"", 0};
  for (uint64_t step = 0; step < (ranks.rank() == 0 ? 5 : 6); ++step) {
    const std::string told = refusal([&] {
      const at::Tensor loss = net->forward(batch(4, step)).square().mean();
      if (step == 1 && ranks.rank() == 1) throw std::runtime_error("a program's own");
      parallel.backward(loss, 4);
    });
    failed.first = failed.first.empty() ? told : failed.first;
    failed.second += told.empty() ? 0 : 1;
  }
  return failed;
}

TEST(LikeDdp, AForwardPassThatOneRankDropsCostsOneStep) {
  for (const char* strategy : {"per_tower", "averaged", "sync", R"({"name": "group_norm", "groups": 3})"}) {
    for (const Counting counting : {Counting::every_forward, Counting::first_before_backward}) {
      const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
        return failures(ranks, BatchNormOptions(kChannels).strategy(strategy).counting(counting));
      });
      EXPECT_NE(first.first.find("is at DataParallel::backward with rows"), std::string::npos) << first.first;
      EXPECT_EQ(first.second, 1) << strategy;
      EXPECT_EQ(second.first, "a program's own");
      EXPECT_EQ(second.second, 2) << strategy;
    }
  }
}

TEST(LikeDdp, ABackwardPassThatFailsOnOneRankCostsOneStep) {
  struct Failing : torch::autograd::Function<Failing> {
    static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x.clone(); }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   const torch::autograd::variable_list&) {
      throw std::runtime_error("a program's own");
    }
  };
  for (const bool unused : {false, true}) {
    const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
      nn::Sequential net = small_net();
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      std::vector<std::string> told;
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        at::Tensor h = net->ptr<nn::LinearImpl>(0)->forward(rows_of(ranks));
        h = ranks.rank() == 1 && step == 1 ? Failing::apply(h) : h;
        const at::Tensor loss = net->ptr<nn::LinearImpl>(2)->forward(h).square().mean();
        told.push_back(refusal([&] { parallel.backward(loss); }));
      }
      EXPECT_LT(difference(ranks.sum(gradients(*net)), gradients(*net) * 2), 1e-12);
      return told;
    });
    EXPECT_EQ(first[0] + first[2] + second[0] + second[2], "");
    EXPECT_EQ(first[1],
              "rank 0 of 2, in the backward pass: it has failed on rank 1, and no rank has its gradients");
    EXPECT_EQ(second[1], "a program's own");
  }
}

TEST(LikeDdp, ABadLossOnOneRankIsToldToAll) {
  const auto [first, second] = on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    const at::Tensor y = net->forward(rows_of(ranks)).square();
    return refusal([&] { parallel.backward(ranks.rank() == 0 ? y.mean() : y, 3); });
  });
  EXPECT_NE(first.find("it has failed on rank 1"), std::string::npos) << first;
  EXPECT_NE(second.find("expected a loss of one real number"), std::string::npos) << second;
}

TEST(LikeDdp, TrafficSaysWhatWasSent) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    const auto sent = ranks.traffic("gradients");
    EXPECT_EQ(sent.exchanges, 1);
    EXPECT_EQ(sent.bytes, static_cast<int64_t>(flat(net->parameters()).nbytes()) + (4 + 2) * 8);
    return 0;
  });
}

}  // namespace
}  // namespace bnlab::like_ddp_test
