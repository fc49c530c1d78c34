#include "harness/communicator/host/dealt_gpus.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

TEST(DealtGpus, EveryRankTakesOneThatNobodyHasWhereThereIsOne) {
  const std::vector<std::string> both{"A", "B"}, none;
  // torchrun shows all GPUs of a host to each of its ranks; here of two hosts.
  const DealtGpus shown_all = deal_gpus({both, both, {"C", "D"}, {"C", "D"}});
  EXPECT_EQ(shown_all.of_rank, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(shown_all.gpus_taken, 4);
  // A container or SLURM shows a rank its own, which is number 0 there.
  const DealtGpus shown_own = deal_gpus({{"A"}, {"B"}});
  EXPECT_EQ(shown_own.of_rank, (std::vector<int>{0, 0}));
  EXPECT_EQ(shown_own.gpus_taken, 2);
  // Two for each of two tasks; a rank that sees more than another.
  EXPECT_EQ(deal_gpus({both, {"C", "D"}}).gpus_taken, 2);
  EXPECT_EQ(deal_gpus({{"A"}, both}).of_rank, (std::vector<int>{0, 1}));
  // Too few: in turn.
  EXPECT_EQ(deal_gpus({both, both, both, both}).of_rank, (std::vector<int>{0, 1, 0, 1}));
  EXPECT_EQ(deal_gpus({both, both, both}).gpus_taken, 2);
  // Somebody sees none.
  EXPECT_EQ(deal_gpus({both, none}).of_rank, (std::vector<int>{0, -1}));
  EXPECT_EQ(deal_gpus({both, none}).gpus_taken, 0);
}

std::string why_not(const std::vector<std::vector<std::string>>& seen) {
  try {
    gpu_of_rank(0, seen);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::environment);
    return error.what();
  }
  return "no error";
}

TEST(GpuOfRank, IsToldOrRefusedWithTheReason) {
  EXPECT_EQ(gpu_of_rank(0, {{"A"}, {"A", "B"}}), 0);
  EXPECT_EQ(gpu_of_rank(1, {{"A"}, {"A", "B"}}), 1);
  EXPECT_EQ(gpu_of_rank(0, {{"A", "B"}, {"A"}}), 1);  // it leaves the other rank the only one that it sees
  EXPECT_EQ(
      why_not({{"A"}, {}}),
      "rank 1 of 2 sees no GPU, or joins for the CPU where another joins for a GPU; let each rank see one "
      "(SLURM: --gpus-per-task=1), or join all for the CPU");
  EXPECT_EQ(why_not({{"A"}, {"A"}}),
            "2 ranks need a GPU each, and find 1; start fewer ranks, or join them for the CPU");
}

}  // namespace
}  // namespace bnlab
