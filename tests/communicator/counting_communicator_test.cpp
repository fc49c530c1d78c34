#include "harness/communicator/counting_communicator.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace bnlab {
namespace {

TEST(CountingCommunicator, AnswersAsIfEveryRankHadSaidTheSame) {
  Ledger ledger;
  CountingCommunicator communicator(3, ledger);
  at::Tensor t = at::tensor({1.0, 2.0}, at::kDouble);
  EXPECT_EQ(communicator.all_gather(t, Purpose::statistics).sizes(), (std::vector<int64_t>{3, 2}));
  EXPECT_TRUE(communicator.gather(t, 0, Purpose::statistics)[2].equal(t));
  EXPECT_FALSE(communicator.gather(t, 1, Purpose::statistics).defined());
  communicator.broadcast(t, 1, Purpose::statistics);
  EXPECT_EQ(t[1].item<double>(), 2);
  communicator.reduce(t, 1, Purpose::statistics);
  EXPECT_EQ(t[1].item<double>(), 2) << "the sum is on rank 1 only";
  communicator.all_reduce(t, Purpose::statistics);
  EXPECT_EQ(t[1].item<double>(), 6);
  communicator.all_reduce_async(t, Purpose::statistics)->wait();
  EXPECT_EQ(t[1].item<double>(), 18);
}

TEST(CountingCommunicator, HandsBackAsManyRowsAsAreReceived) {
  Ledger ledger;
  CountingCommunicator communicator(2, ledger);
  const at::Tensor rows = at::ones({3, 4});
  EXPECT_EQ(communicator.all_to_all(rows, {1, 2}, {1, 4}, Purpose::shuffle).sizes(),
            (std::vector<int64_t>{5, 4}));
}

TEST(CountingCommunicator, BooksWhatThisRankSendsByPurpose) {
  Ledger ledger;
  ledger.keep_list(true);
  CountingCommunicator communicator(2, ledger);
  at::Tensor t = at::ones({5}, at::kDouble);
  communicator.all_gather(t, Purpose::statistics);
  communicator.all_reduce(t, Purpose::statistics);
  communicator.all_to_all(t, {2, 3}, {3, 3}, Purpose::shuffle);
  EXPECT_EQ(ledger.of(Purpose::statistics).collectives, 2);
  EXPECT_EQ(ledger.of(Purpose::statistics).bytes, 80);
  EXPECT_EQ(ledger.of(Purpose::shuffle).bytes, 40);
  EXPECT_EQ(ledger.list().back().op, "all_to_all");
  EXPECT_EQ(ledger.list().back().elements, 5);
}

}  // namespace
}  // namespace bnlab
