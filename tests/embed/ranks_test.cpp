// BatchNorm on ranks that hand in a process group, and checkpoints.
#include "two_ranks.hpp"

namespace bnlab {
namespace {

namespace nn = torch::nn;

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

// By its own images rank 1 would count a single value on rank 0.
at::Tensor images_of(int rank, uint64_t seed) {
  return rank == 0 ? batch(1, seed) : batch(2, seed, /*side=*/1).slice(3, 0, 1);
}

TEST(RanksHandedIn, MayHaveImagesOfDifferentSizes) {
  const auto flat = [](const at::Tensor& x) { return x.movedim(1, 3).reshape({-1, kChannels}); };
  const auto without_rows = [](int rank, uint64_t seed) {
    return batch(rank == 0 ? 2 : 0, seed, 5 + 4 * rank);
  };
  const auto without_pixels = [](int rank, uint64_t seed) { return batch(2, seed, rank == 0 ? 5 : 0); };
  for (const auto& inputs :
       {std::function(images_of), std::function(without_rows), std::function(without_pixels)}) {
    nn::BatchNorm1d plain{nn::BatchNorm1dOptions(kChannels)};
    plain->to(at::kDouble);
    const auto all = [&](uint64_t seed) { return at::cat({flat(inputs(0, seed)), flat(inputs(1, seed))}); };
    const Trained whole = train(plain, all(0), all(1));
    for (const char* options :
         {R"("route": "all_gather")", R"("route": "all_reduce")", R"("route": "gather_activations")",
          R"("route": "gather_activations_host")", R"("weights": "equal")"}) {
      if (options[1] == 'w' && inputs(1, 0).numel() > 0) continue;  // such towers are not the whole batch
      const auto [first, second] = on_two_ranks([&](const Ranks& ranks) {
        BatchNorm layer =
            norm_of(synced(ranks).strategy(R"({"name": "sync", )" + std::string(options) + "}"));
        const Trained trained = train(layer, inputs(ranks.rank(), 0), inputs(ranks.rank(), 1));
        return std::pair(trained, layer->running_var.clone());
      });
      EXPECT_LT(difference(at::cat({flat(first.first.y), flat(second.first.y)}), whole.y), 1e-10) << options;
      EXPECT_LT(difference(at::cat({flat(first.first.dx), flat(second.first.dx)}), whole.dx), 1e-10)
          << options;
      EXPECT_LT(difference(first.first.dweight + second.first.dweight, whole.dweight), 1e-10) << options;
      EXPECT_LT(difference(first.second, plain->running_var), 1e-10) << options;
    }
  }
}

TEST(RanksHandedIn, OfDifferentSizesAreRefusedByAllWhereRowsTravel) {
  on_two_ranks([&](const Ranks& ranks) {
    BatchNorm layer = norm_of(synced(ranks).strategy("shuffle"));
    EXPECT_SAYS(layer->forward(images_of(ranks.rank(), 0)), "images of one size");
    layer->forward(batch(2 * ranks.rank(), 0, 5 + 4 * ranks.rank()));  // rank 0 has none
    return 0;
  });
}

TEST(RanksHandedIn, CountTheValuesOfTheOthersByTheirImages) {
  for (const char* strategy : {"per_tower", "averaged", R"({"name": "batch_renorm", "schedule": null})"}) {
    on_two_ranks([&](const Ranks& ranks) {
      BatchNorm layer = norm_of(synced(ranks).strategy(strategy));
      EXPECT_NO_THROW(layer->forward(images_of(ranks.rank(), 0))) << strategy;
      return 0;
    });
  }
}

TEST(RanksHandedIn, HoldTheMergedStatisticsAfterEveryStep) {
  for (const char* strategy : {"per_tower", "averaged", "every_tower"}) {
    const auto run = [&](const Ranks& ranks, bool current) {
      BatchNorm layer = norm_of(synced(ranks)
                                    .strategy(strategy)
                                    .towers_per_rank(ranks.size() == 2 ? 1 : 2)
                                    .always_current(current));
      for (uint64_t s = 0; s < 2; ++s)
        train_part(layer, batch(8, s), ranks.share(8).first, ranks.share(8).second);
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
    if (ranks.rank() == 0) first->forward(at::rand({2, 3, 4, 4}));
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

TEST(Ranks, NameThePurposesThatTrafficHas) {
  EXPECT_SAYS(Ranks().traffic("gradient"), "expected \"statistics\", \"gradients\"");
}

TEST(Ranks, OfHalfAnEnvironmentAreRefusedAndNotEachAlone) {
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("MASTER_ADDR", "127.0.0.1", 1);
  EXPECT_SAYS(Ranks::from_environment(), "RANK missing or empty");
  ::unsetenv("MASTER_ADDR");
  ::unsetenv("WORLD_SIZE");
  EXPECT_EQ(Ranks::from_environment().size(), 1);
}

TEST(Ranks, AloneShareAllRowsAndExchangeNothing) {
  const Ranks ranks;
  EXPECT_EQ(ranks.size(), 1);
  EXPECT_EQ(ranks.share(5), (std::pair<int64_t, int64_t>{0, 5}));
  EXPECT_TRUE(ranks.any(true));
  EXPECT_FALSE(ranks.any(false));
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
