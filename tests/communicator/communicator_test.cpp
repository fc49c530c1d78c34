// Collectives through shared memory and over Gloo between 1, 2 and 4 ranks, threads of this process: what
// arrives, and what the ledger says.
#include "harness/communicator/communicator.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <thread>
#include <tuple>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/communicator/world.hpp"
#include "harness/support/error.hpp"

namespace bnlab::communicator_test {
namespace {

// c10d has one flight recorder per process, which ranks that are threads would share, so it is switched off
// before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

class Collectives : public ::testing::TestWithParam<std::tuple<int, Exchange>> {
 protected:
  void on_ranks(const std::function<void(World&)>& body) {
    on_thread_ranks(std::get<int>(GetParam()), at::kCPU, body, std::get<Exchange>(GetParam()));
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives,
                         ::testing::Combine(::testing::Values(1, 2, 4),
                                            ::testing::Values(Exchange::shared_memory, Exchange::sockets)),
                         [](const auto& info) {
                           return std::to_string(std::get<int>(info.param)) + "_" +
                                  name_of(std::get<Exchange>(info.param));
                         });

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong};

TEST_P(Collectives, GatherBringsEveryRanksTensorToTheRoot) {
  on_ranks([](World& world) {
    const int root = world.size() - 1;
    for (const at::ScalarType type : kTypes) {
      const at::Tensor mine = at::full({2, 3}, world.rank() + 1, type);
      const at::Tensor all = world.statistics().gather(mine, root, Purpose::statistics);
      ASSERT_EQ(all.defined(), world.rank() == root);
      if (all.defined()) {
        const at::Tensor expected = at::arange(1, world.size() + 1, type).view({-1, 1, 1}).expand({-1, 2, 3});
        EXPECT_TRUE(at::equal(all, expected)) << type;
        EXPECT_EQ(all.scalar_type(), type);
      }
    }
  });
}

// More than a sheet of shared memory holds, and no multiple of it.
constexpr int64_t kLarge = 200003;

TEST_P(Collectives, AllGatherBringsEveryRanksTensorToAll) {
  on_ranks([](World& world) {
    for (const int64_t elements : {int64_t{0}, int64_t{5}, kLarge}) {
      const at::Tensor mine = at::arange(elements, at::kFloat) + world.rank();
      const at::Tensor all = world.statistics().all_gather(mine, Purpose::statistics);
      ASSERT_EQ(all.sizes(), (at::IntArrayRef{world.size(), elements}));
      for (int rank = 0; rank < world.size(); ++rank)
        EXPECT_TRUE(at::equal(all[rank], at::arange(elements, at::kFloat) + rank));
    }
  });
}

TEST_P(Collectives, AllReduceSumsOnAllRanks) {
  on_ranks([](World& world) {
    const int64_t ranks = world.size() * (world.size() + 1) / 2;
    for (const at::ScalarType type : kTypes) {
      at::Tensor t = at::arange(6, type).view({2, 3}) * (world.rank() + 1);
      world.statistics().all_reduce(t, Purpose::statistics);
      EXPECT_TRUE(at::equal(t, at::arange(6, type).view({2, 3}) * ranks)) << type;
    }
    at::Tensor large = at::arange(kLarge, at::kDouble) * (world.rank() + 1);
    world.statistics().all_reduce_async(large, Purpose::statistics)->wait();
    EXPECT_TRUE(at::equal(large, at::arange(kLarge, at::kDouble) * ranks));
  });
}

TEST_P(Collectives, AllReduceLeavesTheSameBitsOnAllRanks) {
  on_ranks([](World& world) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      at::Tensor t =
          (at::arange(1000, at::kFloat) * (0.1F + static_cast<float>(world.rank()))).cos().to(type);
      world.statistics().all_reduce(t, Purpose::statistics);
      const at::Tensor all = world.statistics().all_gather(t, Purpose::statistics);
      for (int rank = 0; rank < world.size(); ++rank) EXPECT_TRUE(at::equal(all[rank], t)) << type;
    }
  });
}

TEST_P(Collectives, BroadcastBringsTheRootsTensor) {
  on_ranks([](World& world) {
    for (const int root : {0, world.size() - 1}) {
      for (const int64_t elements : {int64_t{3}, kLarge}) {
        at::Tensor t = at::arange(elements, at::kFloat) + world.rank();
        world.statistics().broadcast(t, root, Purpose::statistics);
        EXPECT_TRUE(at::equal(t, at::arange(elements, at::kFloat) + root));
      }
    }
  });
}

TEST_P(Collectives, SlowRanksLoseNothingOfManyCollectivesInARow) {
  on_ranks([](World& world) {
    for (int i = 0; i < 50; ++i) {
      if (i % world.size() == world.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const int root = i % world.size();
      at::Tensor t = at::full({7}, i * (world.rank() + 1), at::kLong);
      const at::Tensor gathered = world.statistics().gather(t, root, Purpose::statistics);
      if (world.rank() == root) EXPECT_EQ(gathered[world.size() - 1][6].item<int64_t>(), i * world.size());
      world.statistics().broadcast(t, root, Purpose::statistics);
      EXPECT_EQ(t[3].item<int64_t>(), i * (root + 1));
    }
    world.statistics().barrier();
  });
}

TEST_P(Collectives, LargeTensorsOfDifferentCollectivesFollowEachOther) {
  on_ranks([](World& world) {
    for (int i = 0; i < 4; ++i) {
      if (i % world.size() == world.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const int root = i % world.size();
      at::Tensor sum = at::full({kLarge}, 1 + world.rank(), at::kFloat);
      world.gradients().reduce(sum, root, Purpose::gradients);
      at::Tensor t = at::full({kLarge + i}, i + world.rank(), at::kFloat);
      world.statistics().broadcast(t, world.size() - 1 - root, Purpose::statistics);
      EXPECT_TRUE(t.eq(i + world.size() - 1 - root).all().item<bool>());
      world.gradients().broadcast(sum, root, Purpose::gradients);
      EXPECT_TRUE(sum.eq(world.size() * (world.size() + 1) / 2).all().item<bool>());
    }
  });
}

TEST_P(Collectives, SumsInPlaceKeepTheLayout) {
  on_ranks([](World& world) {
    const at::Tensor values = at::arange(2 * 3 * 4 * 5, at::kFloat).view({2, 3, 4, 5});
    at::Tensor t = (values * (world.rank() + 1)).contiguous(at::MemoryFormat::ChannelsLast);
    world.statistics().all_reduce(t, Purpose::statistics);
    EXPECT_TRUE(t.is_contiguous(at::MemoryFormat::ChannelsLast));
    EXPECT_TRUE(at::equal(t, values * (world.size() * (world.size() + 1) / 2)));
  });
}

TEST_P(Collectives, SharesThatDoNotAddUpAreRefused) {
  on_ranks([](World& world) {
    const std::vector<int64_t> ones(static_cast<size_t>(world.size()), 1);
    EXPECT_THROW(
        world.statistics().all_to_all(at::zeros({world.size() + 1, 2}), ones, ones, Purpose::shuffle), Error);
    EXPECT_THROW(world.statistics().all_to_all(at::zeros({1, 2}), {}, {}, Purpose::shuffle), Error);
  });
}

TEST_P(Collectives, AllToAllTakesMoreThanASheet) {
  on_ranks([](World& world) {
    std::vector<int64_t> send(static_cast<size_t>(world.size()), 1), receive(send);
    send[0] = 3;  // rank 0 gets more, so that some ranks have more to say than others
    if (world.rank() == 0) std::fill(receive.begin(), receive.end(), 3);
    const at::Tensor rows = at::full({world.size() + 2, kLarge}, world.rank(), at::kFloat);
    const at::Tensor received = world.statistics().all_to_all(rows, send, receive, Purpose::shuffle);
    const int64_t of_each = receive[0];
    for (int rank = 0; rank < world.size(); ++rank)
      EXPECT_TRUE(received.narrow(0, rank * of_each, of_each).eq(rank).all().item<bool>());
  });
}

TEST_P(Collectives, GatherTakesTensorsWithoutElements) {
  on_ranks([](World& world) {
    const at::Tensor all = world.statistics().gather(at::empty({0, 3}), 0, Purpose::statistics);
    if (world.rank() == 0) EXPECT_EQ(all.sizes(), (at::IntArrayRef{world.size(), 0, 3}));
  });
}

TEST_P(Collectives, ReduceSumsOnTheRoot) {
  on_ranks([](World& world) {
    const int root = world.size() - 1;
    at::Tensor t = at::arange(6, at::kDouble).view({2, 3}) * (world.rank() + 1);
    world.statistics().reduce(t, root, Purpose::gradients);
    if (world.rank() == root) {
      const double ranks = world.size() * (world.size() + 1) / 2;
      EXPECT_TRUE(at::equal(t, at::arange(6, at::kDouble).view({2, 3}) * ranks));
    }
  });
}

int64_t rows_from_to(int from, int to) {
  return (from + 2 * to) % 3;
}  // some ranks send nothing

TEST_P(Collectives, AllToAllDeliversUnevenSharesInRankOrder) {
  on_ranks([](World& world) {
    for (const at::ScalarType type : kTypes) {
      std::vector<int64_t> send, receive;
      std::vector<at::Tensor> sent{at::empty({0, 2}, type)}, expected{at::empty({0, 2}, type)};
      for (int other = 0; other < world.size(); ++other) {
        send.push_back(rows_from_to(world.rank(), other));
        receive.push_back(rows_from_to(other, world.rank()));
        sent.push_back(at::full({send.back(), 2}, 10 * world.rank() + other, type));
        expected.push_back(at::full({receive.back(), 2}, 10 * other + world.rank(), type));
      }
      const at::Tensor received =
          world.statistics().all_to_all(at::cat(sent), send, receive, Purpose::shuffle);
      EXPECT_TRUE(at::equal(received, at::cat(expected))) << type << "\n" << received;
      EXPECT_EQ(received.scalar_type(), type);
    }
  });
}

TEST_P(Collectives, AllToAllOfNothingIsNothing) {
  on_ranks([](World& world) {
    const std::vector<int64_t> none(static_cast<size_t>(world.size()), 0);
    const at::Tensor received =
        world.statistics().all_to_all(at::empty({0, 3, 4, 5}), none, none, Purpose::shuffle);
    EXPECT_EQ(received.sizes(), (at::IntArrayRef{0, 3, 4, 5}));
  });
}

TEST_P(Collectives, TheLedgerKnowsOpElementsAndPurpose) {
  on_ranks([](World& world) {
    Ledger& ledger = world.ledger();
    ledger.clear();
    ledger.keep_list(true);
    at::Tensor t = at::zeros({4, 3}, at::kDouble);
    world.statistics().gather(t, 0, Purpose::statistics);
    world.statistics().reduce(t, 0, Purpose::gradients);
    std::vector<int64_t> rows(static_cast<size_t>(world.size()), 4 / world.size());
    world.host().all_to_all(t, rows, rows, Purpose::shuffle);
    ledger.keep_list(false);
    std::vector<std::string> ops;
    for (const Collective& collective : ledger.list()) {
      ops.push_back(collective.op);
      EXPECT_EQ(collective.elements, 12) << collective.op;
    }
    EXPECT_EQ(ops, (std::vector<std::string>{"gather", "reduce", "all_to_all"}));
    for (const Purpose purpose : {Purpose::statistics, Purpose::gradients, Purpose::shuffle}) {
      EXPECT_EQ(ledger.of(purpose).collectives, 1);
      EXPECT_EQ(ledger.of(purpose).bytes, 96);
    }
  });
}

TEST_P(Collectives, OnTheCpuTheHostGroupIsThatOfTheStatistics) {
  on_ranks([](World& world) { EXPECT_EQ(&world.host(), &world.statistics()); });
}

TEST_P(Collectives, TensorsThatAreNotDenseAreRefused) {
  on_ranks([](World& world) {
    at::Tensor column = at::zeros({2, 3}).select(1, 1);
    const std::vector<int64_t> rows(static_cast<size_t>(world.size()), 2 / world.size());
    EXPECT_THROW(world.statistics().gather(column, 0, Purpose::statistics), Error);
    EXPECT_THROW(world.statistics().reduce(column, 0, Purpose::statistics), Error);
    EXPECT_THROW(world.statistics().all_to_all(column, rows, rows, Purpose::shuffle), Error);
  });
}

}  // namespace
}  // namespace bnlab::communicator_test
