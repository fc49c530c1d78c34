// What the ledger says of the gradients that c10d's Reducer averages, of those that go through shared memory,
// and of buckets that a graph can hold.
#include <gtest/gtest.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "harness/communicator/gradient_sync.hpp"
#include "harness/communicator/thread_ranks.hpp"

namespace bnlab::reducer_test {
namespace {

// c10d's flight recorder is one per process and not made for ranks that are threads: off before main().
[[maybe_unused]] const int no_flight_recorder = ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

// Elements of every all-reduce in each of `steps` steps over parameters of these sizes.
std::vector<std::vector<int64_t>> exchanged(World& world, const std::vector<int64_t>& sizes, int steps) {
  std::vector<at::Tensor> parameters;
  for (const int64_t size : sizes) parameters.push_back(at::zeros({size}).set_requires_grad(true));
  const auto sync = world.gradient_sync(parameters, /*after_backward=*/false);
  world.ledger().keep_list(true);
  std::vector<std::vector<int64_t>> seen;
  for (int step = 0; step < steps; ++step) {
    world.ledger().clear();
    sync->before_forward();
    at::Tensor loss = at::zeros({});
    for (const at::Tensor& p : parameters) loss = loss + p.sum() * (world.rank() + 1);
    sync->before_backward();
    loss.backward();
    sync->after_backward();
    sync->exchange();
    const float mean = static_cast<float>(world.size() + 1) / 2;
    for (const at::Tensor& p : parameters) EXPECT_TRUE(at::equal(p.grad(), at::full_like(p, mean)));
    sync->after_step(step + 1);
    seen.emplace_back();
    for (const Collective& collective : world.ledger().list()) {
      EXPECT_EQ(collective.op, "all_reduce");
      EXPECT_EQ(collective.purpose, Purpose::gradients);
      seen.back().push_back(collective.elements);
    }
    const int64_t elements = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
    EXPECT_EQ(world.ledger().of(Purpose::gradients).bytes, 4 * elements) << "step " << step;
  }
  return seen;
}

// The first bucket holds up to 1 MiB and the others up to 25 MiB. At first they are cut in the order of the
// parameters, and after one step in the order in which the gradients have arrived.
TEST(Reducer, BooksTheBucketsThatTravelInEveryStep) {
  const int64_t mebibyte = (1 << 20) / 4;
  const std::vector<int64_t> sizes{2 * mebibyte, 26 * mebibyte, mebibyte / 2};
  on_thread_ranks(
      2, at::kCPU,
      [&](World& world) {
        const auto steps = exchanged(world, sizes, 3);
        EXPECT_EQ(steps[0].size(), 3U);
        EXPECT_EQ(steps[1].size(), 2U);
        EXPECT_EQ(steps[2], steps[1]);
      },
      Exchange::sockets);
}

TEST(FlatSync, BooksOneExchangeInEveryStep) {
  const std::vector<int64_t> sizes{100003, 1, 70001};
  on_thread_ranks(2, at::kCPU, [&](World& world) {
    for (const auto& step : exchanged(world, sizes, 2)) EXPECT_EQ(step, (std::vector<int64_t>{170005}));
  });
}

// The last parameters' come first, on each rank, in whatever order they arrive. Of two passes the last one
// exchanges the sum.
TEST(BucketSync, ExchangesFullBucketsInOneOrderDuringTheLastPass) {
  on_thread_ranks(2, at::kCPU, [](World& world) {
    std::vector<at::Tensor> parameters;
    for (const int64_t size : {40, 1, 7, 3}) parameters.push_back(at::zeros({size}).set_requires_grad(true));
    std::vector<at::Tensor> used = parameters;
    if (world.rank() == 1) std::reverse(used.begin(), used.end());
    const auto sync =
        make_bucket_sync(parameters, world.gradients(), {3 * sizeof(float), 10 * sizeof(float)});
    const auto pass = [&](double factor) {
      at::Tensor loss = at::zeros({});
      for (const at::Tensor& p : used) loss = loss + p.sum() * factor;
      loss.backward();
    };
    world.ledger().keep_list(true);
    for (int step = 0; step < 2; ++step) {
      world.ledger().clear();
      sync->before_forward();
      sync->before_backward();  // of a recording that breaks off
      parameters[0].sum().backward();
      drop_gradients(parameters);
      sync->before_forward();
      pass(10);
      EXPECT_TRUE(world.ledger().list().empty());
      sync->before_backward();
      pass(world.rank() + 1);
      sync->after_backward();
      std::vector<int64_t> exchanged;
      for (const Collective& collective : world.ledger().list()) exchanged.push_back(collective.elements);
      EXPECT_EQ(exchanged, (std::vector<int64_t>{3, 48}));
      for (const at::Tensor& p : parameters) EXPECT_TRUE(at::equal(p.grad(), at::full_like(p, 11.5)));
      sync->after_step(step + 1);
    }
  });
}

}  // namespace
}  // namespace bnlab::reducer_test
