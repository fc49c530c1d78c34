// Passes of DataParallel beside those of DistributedDataParallel, where ranks and modules stay as they were.
#include "like_ddp.hpp"

namespace bnlab::like_ddp_test {
namespace {

// Forward and backward

TEST(LikeDdp, ForwardIsTheModulesOwnAndExchangesNothing) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    const int64_t before = ranks.traffic().exchanges;
    EXPECT_EQ(difference(net->forward(all_rows()), small_net()->forward(all_rows())), 0);
    EXPECT_EQ(ranks.traffic().exchanges, before);
    return 0;
  });
}

TEST(LikeDdp, BackwardLeavesTheMeanGradientOnEveryRank) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, GradientsOfInputsAreThisRanksOwn) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    const at::Tensor x = rows_of(ranks).clone().requires_grad_(), y = rows_of(ranks).clone().requires_grad_();
    parallel.backward(loss_of(net, x));
    nn::Sequential alone = small_net();
    loss_of(alone, y).backward();
    EXPECT_LT(difference(x.grad(), y.grad()), 1e-15);
    return 0;
  });
}

TEST(LikeDdp, HooksOfParametersSeeThisRanksGradient) {
  const auto twice = gradients_alone<nn::Sequential>(small_net(), loss_of) * 2;
  expect_same_on_both(twice, [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    for (at::Tensor& p : net->parameters())
      p.register_hook([](const at::Tensor& gradient) { return gradient * 2; });
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, SeveralBackwardPassesAddUp) {
  const auto twice = gradients_alone<nn::Sequential>(small_net(), loss_of) * 2;
  expect_same_on_both(twice, [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, TwoModulesOfTheSameRanksTrainSideBySide) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential one = small_net(), other = small_net(7);
    DataParallel first(*one, ranks), second(*other, ranks);
    const at::Tensor loss = loss_of(one, rows_of(ranks)), apart = loss_of(other, rows_of(ranks));
    second.backward(apart);
    first.backward(loss);
    return gradients(*one);
  });
}

TEST(LikeDdp, GradientsOfSeveralTypesAreAveraged) {
  for (const at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    on_two_ranks([&](const Ranks& ranks) {
      nn::Module net("Net");
      at::Tensor a = net.register_parameter("a", at::ones({2}, type));
      at::Tensor b = net.register_parameter("b", at::ones({3}, at::kDouble));
      DataParallel parallel(net, ranks);
      parallel.backward((a.to(at::kDouble).sum() + b.sum()) * (ranks.rank() == 0 ? 1 : 3));
      EXPECT_EQ(a.grad().scalar_type(), type);
      EXPECT_EQ(difference(a.grad().to(at::kDouble), at::full({2}, 2, at::kDouble)), 0);
      EXPECT_EQ(difference(b.grad(), at::full({3}, 2, at::kDouble)), 0);
      return 0;
    });
  }
}

TEST(LikeDdp, GradientsHaveTheLayoutOfTheirParameters) {
  const auto made = [] {
    nn::Sequential net = seeded(nn::Sequential(nn::Conv2d(3, 4, 3)));
    net->parameters()[0].set_data(net->parameters()[0].to(at::MemoryFormat::ChannelsLast));
    return net;
  };
  const auto loss = [](nn::Sequential& net, const Ranks& ranks) {
    return net->forward(batch(4, 0).slice(0, ranks.share(4).first, ranks.share(4).second)).square().mean();
  };
  nn::Sequential alone = made();
  loss(alone, Ranks()).backward();
  expect_same_on_both(gradients(*alone), [&](const Ranks& ranks) {
    nn::Sequential net = made();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss(net, ranks));
    EXPECT_TRUE(net->parameters()[0].grad().is_contiguous(at::MemoryFormat::ChannelsLast));
    return gradients(*net);
  });
}

TEST(LikeDdp, ParametersWithoutElementsAreNoTrouble) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Module net("Net");
    at::Tensor none = net.register_parameter("none", at::ones({0, 3}));
    at::Tensor w = net.register_parameter("w", at::ones({2}));
    DataParallel parallel(net, ranks);
    parallel.backward(w.sum() + none.sum());
    EXPECT_EQ(w.grad().sum().item<float>(), 2);
    return 0;
  });
}

TEST(LikeDdp, AParameterThatModulesShareIsAveragedOnce) {
  struct TiedImpl : nn::Module {
    explicit TiedImpl(const nn::Linear& shared) {
      register_module("encoder", shared), register_module("decoder", shared);
      register_module("head", head);
    }
    nn::Linear head{3, 2};
  };
  const auto loss = [](nn::Linear& shared, TiedImpl& net, const at::Tensor& x) {
    return net.head(shared(shared(x).tanh())).square().mean();
  };
  const auto made = [] {
    auto shared = seeded(nn::Linear(3, 3));
    auto net = seeded(std::make_shared<TiedImpl>(shared), 20);
    return std::pair(shared, net);
  };
  auto [shared_alone, alone] = made();
  loss(shared_alone, *alone, all_rows()).backward();
  for (const bool unused : {false, true}) {
    expect_same_on_both(gradients(*alone), [&](const Ranks& ranks) {
      auto [shared, net] = made();
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      for (int pass = 0; pass < 2; ++pass) {
        net->zero_grad();
        parallel.backward(loss(shared, *net, rows_of(ranks)));
      }
      return gradients(*net);
    });
  }
}

TEST(LikeDdp, ClippingSeesTheMeanGradient) {
  nn::Sequential alone = small_net();
  loss_of(alone, all_rows()).backward();
  nn::utils::clip_grad_norm_(alone->parameters(), 0.1);
  expect_same_on_both(gradients(*alone), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)));
    nn::utils::clip_grad_norm_(net->parameters(), 0.1);
    return gradients(*net);
  });
}

TEST(LikeDdp, OptimizersStepAlike) {
  const auto trained = [](nn::Sequential net, const std::function<void(const at::Tensor&)>& backward,
                          const at::Tensor& x) {
    torch::optim::Adam adam(net->parameters());
    for (int step = 0; step < 3; ++step) {
      adam.zero_grad();
      backward(loss_of(net, x));
      adam.step();
    }
    return flat(net->parameters());
  };
  expect_same_on_both(trained(
                          small_net(), [](const at::Tensor& loss) { loss.backward(); }, all_rows()),
                      [&](const Ranks& ranks) {
                        nn::Sequential net = small_net();
                        DataParallel parallel(*net, ranks);
                        return trained(
                            net, [&](const at::Tensor& loss) { parallel.backward(loss); }, rows_of(ranks));
                      });
}

TEST(LikeDdp, GradientsCanBeZeroedBothWays) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    for (const bool to_none : {false, true, false}) {
      parallel.backward(loss_of(net, rows_of(ranks)));
      net->zero_grad(to_none);
    }
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, GradientsThatTheProgramKeepsStayAsTheyWere) {
  for (const bool unused : {false, true}) {
    expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [&](const Ranks& ranks) {
      nn::Sequential net = small_net();
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      Tensors kept;
      for (int pass = 0; pass < 3; ++pass) {
        net->zero_grad();
        parallel.backward(loss_of(net, rows_of(ranks)) * (pass + 1));
        if (pass == 0)
          for (const at::Tensor& p : net->parameters()) kept.push_back(p.grad());
      }
      return flat(kept);
    });
  }
}

// A gradient penalty

at::Tensor penalised(nn::Sequential& net, const at::Tensor& rows) {
  const at::Tensor x = rows.detach().clone().requires_grad_();
  const at::Tensor y = net->forward(x);
  const at::Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true)[0];
  return y.square().mean() + (slope.norm(2, 1) - 1).square().mean();
}

TEST(LikeDdp, AGradientPenaltyTrainsAsInOneProcess) {
  for (const bool unused : {false, true}) {
    expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), penalised), [&](const Ranks& ranks) {
      nn::Sequential net = small_net();
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      for (int pass = 0; pass < 2; ++pass) {
        net->zero_grad();
        parallel.backward(penalised(net, rows_of(ranks)), 3);
      }
      return gradients(*net);
    });
  }
}

TEST(LikeDdp, AGradientPenaltyThroughTorchsBatchNormIsTheMeanOfTheRanksOwn) {
  const auto made = [] {
    return seeded(nn::Sequential(nn::Linear(3, 4), nn::BatchNorm1d(4), nn::Tanh(), nn::Linear(4, 2)));
  };
  nn::Sequential alone = made();
  (penalised(alone, all_rows().slice(0, 0, 3)) / 2 + penalised(alone, all_rows().slice(0, 3, 6)) / 2)
      .backward();
  expect_same_on_both(gradients(*alone), [&](const Ranks& ranks) {
    nn::Sequential net = made();
    DataParallel parallel(*net, ranks);
    parallel.backward(penalised(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, AGradientPenaltyMayStandInAPassOfItsOwn) {
  const auto penalty = [](nn::Sequential& net, const at::Tensor& rows) {
    const at::Tensor x = rows.detach().clone().requires_grad_();
    return torch::autograd::grad({net->forward(x).square().sum()}, {x}, {}, true, true)[0].square().sum() /
           static_cast<double>(rows.size(0));
  };
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), penalty), [&](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(penalty(net, rows_of(ranks)));
    return gradients(*net);
  });
}

}  // namespace
}  // namespace bnlab::like_ddp_test
