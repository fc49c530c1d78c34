// Collectives over Gloo between 1, 2 and 4 ranks, threads of this process: what arrives, and what the ledger
// says.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/communicator/world.hpp"
#include "harness/error.hpp"

namespace bnlab {
namespace {

// c10d has one flight recorder per process, which ranks that are threads would share, so it is switched off
// before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  void on_ranks(const std::function<void(World&)>& body) { on_thread_ranks(GetParam(), at::kCPU, body); }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 4));

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

TEST_P(Collectives, GatherTakesTensorsWithoutElements) {
  on_ranks([](World& world) {
    const at::Tensor all = world.statistics().gather(at::empty({0, 3}), 0, Purpose::statistics);
    if (world.rank() == 0) {
      EXPECT_EQ(all.sizes(), (at::IntArrayRef{world.size(), 0, 3}));
    }
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
}  // namespace bnlab
