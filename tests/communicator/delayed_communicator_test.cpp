// Ranks whose exchanges are slower than they really are: the same numbers, the same books.
#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "harness/communicator/host/network.hpp"
#include "harness/communicator/world.hpp"

namespace bnlab::delayed_communicator_test {
namespace {

// What a rank has got, and what it has booked.
struct Seen {
  std::vector<double> numbers;
  Traffic statistics, gradients;
  double seconds = 0;
};

void add(Seen& seen, const at::Tensor& t) {
  const at::Tensor flat = t.to(at::kDouble).flatten();
  for (int64_t i = 0; i < flat.numel(); ++i) seen.numbers.push_back(flat[i].item<double>());
}

Seen exchange_all(World& world) {
  Seen seen;
  Communicator& c = world.statistics();
  const auto mine = [&] { return at::full({2}, world.rank() + 1, at::kFloat); };
  const auto start = std::chrono::steady_clock::now();
  add(seen, c.all_gather(mine(), Purpose::statistics));
  at::Tensor sum = mine(), root = mine(), reduced = mine(), later = mine();
  c.all_reduce(sum, Purpose::statistics);
  add(seen, sum);
  c.broadcast(root, 0, Purpose::statistics);
  add(seen, root);
  if (const at::Tensor gathered = c.gather(mine(), 0, Purpose::statistics); gathered.defined())
    add(seen, gathered);
  c.reduce(reduced, 0, Purpose::statistics);
  if (world.rank() == 0) add(seen, reduced);
  add(seen, c.all_to_all(mine(), {1, 1}, {1, 1}, Purpose::statistics));
  const auto pending = c.all_reduce_async(later, Purpose::statistics);
  pending->wait();
  add(seen, later);
  seen.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  at::Tensor weight = at::zeros({3}).requires_grad_(true);
  const auto sync = world.gradient_sync({weight}, /*after_backward=*/false);
  sync->before_forward();
  sync->before_backward();
  (weight * (world.rank() + 1.0)).sum().backward();
  sync->after_backward();
  sync->exchange();
  add(seen, weight.grad());
  seen.statistics = world.ledger().of(Purpose::statistics);
  seen.gradients = world.ledger().of(Purpose::gradients);
  return seen;
}

std::array<Seen, 2> on_two_ranks(Exchange exchange, const ExchangeDelay& delay) {
  std::array<Seen, 2> seen;
  const LoopbackSocket socket;
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Rendezvous at;
      at.rank = rank;
      at.size = 2;
      at.port = socket.port();
      at.listen_fd = rank == 0 ? ::dup(socket.fd()) : -1;
      at.exchange = exchange;
      at.delay = delay;
      const auto world = join_world(at, at::kCPU);
      seen[static_cast<size_t>(rank)] = exchange_all(*world);
      world->shutdown();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return seen;
}

TEST(DelayedCommunicator, GivesTheNumbersOfTheRealOneAndBooksThemOnce) {
  for (const Exchange exchange : {Exchange::shared_memory, Exchange::sockets}) {
    const auto real = on_two_ranks(exchange, {});
    const auto delayed = on_two_ranks(exchange, {.seconds = 2e-3, .bytes_per_s = 1e6});
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(real[rank].numbers, delayed[rank].numbers);
      EXPECT_EQ(real[rank].statistics.collectives, delayed[rank].statistics.collectives);
      EXPECT_EQ(real[rank].statistics.bytes, delayed[rank].statistics.bytes);
      EXPECT_EQ(real[rank].gradients.collectives, delayed[rank].gradients.collectives);
      EXPECT_EQ(real[rank].gradients.bytes, delayed[rank].gradients.bytes);
    }
  }
}

// What is waited at least, whatever else the machine does: seven exchanges of 2 ms and 56 bytes at 1 KB/s.
TEST(DelayedCommunicator, EveryExchangeIsLate) {
  const auto delayed = on_two_ranks(Exchange::shared_memory, {.seconds = 2e-3, .bytes_per_s = 1e3});
  EXPECT_GE(delayed[0].seconds, 7 * 2e-3 + 56 / 1e3);
}

}  // namespace
}  // namespace bnlab::delayed_communicator_test
