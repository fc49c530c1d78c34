// How DataParallel is made, beside DistributedDataParallel: whose weights, unlike ranks, what is refused.
#include "like_ddp.hpp"

namespace bnlab::like_ddp_test {
namespace {

// The constructor

TEST(LikeDdp, StartsFromTheParametersOfRank0) {
  expect_same_on_both(flat(small_net(0)->parameters()), [](const Ranks& ranks) {
    nn::Sequential net = small_net(static_cast<uint64_t>(ranks.rank()) * 50);
    DataParallel parallel(*net, ranks);
    return flat(net->parameters());
  });
}

TEST(LikeDdp, StartsFromTheBuffersOfRank0OfEveryType) {
  for (const at::ScalarType type : {at::kBool, at::kByte, at::kShort, at::kLong, at::kHalf, at::kBFloat16,
                                    at::kFloat, at::kComplexFloat}) {
    expect_same_on_both(at::ones({3}, at::kDouble), [&](const Ranks& ranks) {
      nn::Sequential net = small_net();
      at::Tensor buffer = net->register_buffer("b", at::full({3}, ranks.rank() == 0 ? 1 : 0, type));
      DataParallel parallel(*net, ranks);
      return at::real(buffer).to(at::kDouble);
    });
  }
}

TEST(LikeDdp, AlwaysSendsWhatRank0Has) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    EXPECT_GE(ranks.traffic("control").bytes, flat(net->parameters()).nbytes());
    return 0;
  });
}

TEST(LikeDdp, LeavesParametersOnTheirDevice) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    const void* const before = net->parameters()[0].const_data_ptr();
    DataParallel parallel(*net, ranks);
    EXPECT_EQ(net->parameters()[0].const_data_ptr(), before);
    return 0;
  });
}

TEST(LikeDdp, RefusesParametersOnSeveralDevices) {
  nn::Module net("Net");
  net.register_parameter("here", at::ones({2}));
  net.register_parameter("there", at::ones({2}, at::kMeta));
  EXPECT_SAYS(DataParallel(net, Ranks()), "parameter there is on another device than those before it");
}

TEST(LikeDdp, TakesTheProcessGroupThatItIsGiven) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    EXPECT_EQ(ranks.size(), 2);
    return 0;
  });
}

TEST(LikeDdp, AloneIsAPlainBackwardPass) {
  nn::Sequential net = small_net();
  DataParallel parallel(*net, Ranks());
  parallel.backward(loss_of(net, all_rows()), 6);
  EXPECT_LT(difference(gradients(*net), gradients_alone<nn::Sequential>(small_net(), loss_of)), 1e-15);
}

TEST(LikeDdp, SendsLargeNetworksInSeveralBuckets) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Sequential net = seeded(nn::Sequential(nn::Linear(3, 300), nn::Linear(300, 600), nn::Linear(600, 2)));
    DataParallel parallel(*net, ranks);
    for (const int64_t least : {2, 2}) {  // the second time in the order in which gradients arrived
      const int64_t before = ranks.traffic("gradients").exchanges;
      parallel.backward(loss_of(net, rows_of(ranks)));
      EXPECT_GE(ranks.traffic("gradients").exchanges - before, least);
    }
    return 0;
  });
}

TEST(LikeDdp, CanBeMoved) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel first(*net, ranks);
    DataParallel parallel(std::move(first));
    parallel.backward(loss_of(net, rows_of(ranks)));
    return gradients(*net);
  });
}

TEST(LikeDdp, LeavesNoHooksBehind) {
  expect_same_on_both(gradients_alone<nn::Sequential>(small_net(), loss_of), [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    std::optional<DataParallel> parallel;
    parallel.emplace(*net, ranks);
    parallel->backward(loss_of(net, rows_of(ranks)));
    parallel.reset();
    net->zero_grad();
    const int64_t before = ranks.traffic().exchanges;
    loss_of(net, all_rows()).backward();
    EXPECT_EQ(ranks.traffic().exchanges, before);
    return gradients(*net);
  });
}

// Ranks that are not alike

TEST(LikeDdp, RefusesAnotherNumberOfParameters) {
  expect_refused_where_ranks_differ(
      "nothing more, rank 1 has parameter more (Float [2], strides [1], Strided, cpu, with a gradient)",
      [](nn::Module& net, int rank) {
        if (rank == 1) net.register_parameter("more", at::ones({2}));
      });
}

TEST(LikeDdp, RefusesAnotherShapeOfAsManyElements) {
  expect_refused_where_ranks_differ(
      "parameter w (Float [2, 6], strides [6, 1], Strided, cpu, with a gradient), rank 1 has parameter w "
      "(Float [6, 2], strides [2, 1], Strided, cpu, with a gradient)",
      [](nn::Module& net, int rank) {
        net.register_parameter("w", rank == 0 ? at::ones({2, 6}) : at::ones({6, 2}));
      });
}

TEST(LikeDdp, RefusesAnotherLayout) {
  expect_refused_where_ranks_differ(
      "parameter w (Float [2, 3, 2, 2], strides [12, 4, 2, 1]", [](nn::Module& net, int rank) {
        net.register_parameter(
            "w", at::ones({2, 3, 2, 2})
                     .to(rank == 0 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast));
      });
}

TEST(LikeDdp, TakesStridesThatSayNothing) {
  on_two_ranks([](const Ranks& ranks) {
    nn::Module net("Net");
    net.register_parameter(
        "w", at::ones({2, 3, 1, 1})
                 .to(ranks.rank() == 0 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast));
    DataParallel parallel(net, ranks);
    return 0;
  });
}

TEST(LikeDdp, RefusesAnotherOrderOfNames) {
  expect_refused_where_ranks_differ("parameter a (", [](nn::Module& net, int rank) {
    for (const char* name : {rank == 0 ? "a" : "b", rank == 0 ? "b" : "a"})
      net.register_parameter(name, at::ones({2}));
  });
}

TEST(LikeDdp, RefusesLongNamesThatDifferAtTheirEnd) {
  const std::string long_name(300, 'n');
  expect_refused_where_ranks_differ("parameter " + long_name + "0 (", [&](nn::Module& net, int rank) {
    net.register_parameter(long_name + std::to_string(rank), at::ones({2}));
  });
}

TEST(LikeDdp, RefusesAnotherType) {
  expect_refused_where_ranks_differ("parameter w (Float [2]", [](nn::Module& net, int rank) {
    net.register_parameter("w", at::ones({2}, rank == 0 ? at::kFloat : at::kInt), /*requires_grad=*/false);
  });
}

TEST(LikeDdp, RefusesAParameterThatOneRankDoesNotTrain) {
  expect_refused_where_ranks_differ(
      "parameter w (Float [2], strides [1], Strided, cpu, with a gradient), rank 1 has parameter w (Float "
      "[2], strides [1], Strided, cpu)",
      [](nn::Module& net, int rank) { net.register_parameter("w", at::ones({2}), rank == 0); });
}

TEST(LikeDdp, RefusesBuffersOfAnotherSize) {
  expect_refused_where_ranks_differ(
      "buffer b (Float [2], strides [1], Strided, cpu), rank 1 has buffer b "
      "(Float [3], strides [1], Strided, cpu)",
      [](nn::Module& net, int rank) { net.register_buffer("b", at::ones({rank + 2})); });
}

TEST(LikeDdp, RefusesBuffersThatOneRankHasReplacedBeforeABroadcast) {
  expect_both_say("rank 0 has buffer b (Float [3]", [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    at::Tensor& buffer = net->register_buffer("b", at::ones({3}));
    DataParallel parallel(*net, ranks);
    buffer.set_data(at::ones({ranks.rank() == 0 ? 3 : 4}));
    parallel.broadcast();
  });
}

TEST(LikeDdp, RefusesAParameterThatOneRankFreezesLater) {
  expect_both_say(
      "rank 0 is at DataParallel::backward with rows, rank 1 is at DataParallel::backward with rows and "
      "other parameters than before",
      [](const Ranks& ranks) {
        nn::Sequential net = small_net();
        DataParallel parallel(*net, ranks);
        net->parameters()[1].requires_grad_(ranks.rank() == 0);
        parallel.backward(loss_of(net, rows_of(ranks)), 3);
      });
}

// What is refused at the door

TEST(LikeDdp, RefusesSparseEmbeddings) {
  nn::Sequential net(nn::Linear(2, 2), nn::Embedding(nn::EmbeddingOptions(10, 4).sparse(true)));
  expect_both_say("the gradient of 1.weight is sparse, and sparse gradients are not exchanged",
                  [&](const Ranks& ranks) {
                    const auto own = std::dynamic_pointer_cast<nn::SequentialImpl>(net->clone());
                    DataParallel parallel(*own, ranks);
                  });
  nn::EmbeddingBag bag(nn::EmbeddingBagOptions(10, 4).sparse(true).mode(torch::kSum));
  EXPECT_SAYS(DataParallel(*bag, Ranks()), "the gradient of weight is sparse");
}

TEST(LikeDdp, RefusesOtherSparseGradientsByName) {
  for (const bool unused : {false, true}) {
    expect_both_say("the gradient of 0.weight is sparse", [&](const Ranks& ranks) {
      nn::Sequential net = seeded(nn::Sequential(nn::Linear(3, 4)));
      DataParallel parallel(*net, ranks, {.unused_parameters = unused});
      parallel.backward(
          torch::embedding(net->parameters()[0], at::arange(2), -1, false, /*sparse=*/true).sum() +
          net->parameters()[1].sum());
    });
  }
}

TEST(LikeDdp, RefusesComplexParameters) {
  nn::Module net("Net");
  net.register_parameter("w", at::ones({2}, at::kComplexFloat));
  EXPECT_SAYS(DataParallel(net, Ranks()), "parameter w is complex");
}

TEST(LikeDdp, RefusesParametersOfIntegers) {
  nn::Module net("Net");
  net.register_parameter("w", at::ones({2}, at::kLong), /*requires_grad=*/false);
  EXPECT_SAYS(DataParallel(net, Ranks()), "parameter w is of integers");
}

TEST(LikeDdp, RefusesSparseParametersAndBuffers) {
  nn::Module net("Net");
  net.register_buffer("b", at::ones({2, 2}).to_sparse());
  EXPECT_SAYS(DataParallel(net, Ranks()), "buffer b is sparse");
  net.register_parameter("w", at::ones({2, 2}).to_sparse());
  EXPECT_SAYS(DataParallel(net, Ranks()), "parameter w is sparse");
}

TEST(LikeDdp, RefusesAModuleThatTrainsNothing) {
  nn::Sequential net = small_net();
  for (at::Tensor& p : net->parameters()) p.requires_grad_(false);
  EXPECT_SAYS(DataParallel(*net, Ranks()), "no parameter of the module needs a gradient");
}

TEST(LikeDdp, RefusesALossOfSeveralElements) {
  expect_both_say("expected a loss of one real number, got Double [3, 2]", [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(net->forward(rows_of(ranks)));
  });
}

TEST(LikeDdp, RefusesALossWithoutAGradient) {
  nn::Sequential net = small_net();
  DataParallel parallel(*net, Ranks());
  EXPECT_SAYS(parallel.backward(at::ones({})), "the loss depends on no tensor that needs a gradient");
  EXPECT_SAYS(parallel.accumulate(at::Tensor()), "expected a loss of one real number, got none");
}

TEST(LikeDdp, RefusesANegativeNumberOfRowsOnAllRanks) {
  expect_both_say("expected a number of rows, got -1", [](const Ranks& ranks) {
    nn::Sequential net = small_net();
    DataParallel parallel(*net, ranks);
    parallel.backward(loss_of(net, rows_of(ranks)), ranks.rank() == 0 ? 3 : -1);
  });
}

}  // namespace
}  // namespace bnlab::like_ddp_test
