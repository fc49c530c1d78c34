// Every strategy on GPUs against the float64 reference, over NCCL: a world of one, one rank per GPU, and two
// ranks on one GPU where the installed NCCL allows it. Without a GPU these tests skip themselves.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness/training/rank.hpp"
#include "harness/verify/verify.hpp"

namespace bnlab {
namespace {

void expect_all_agree(const VerifyRequest& request) {
  const VerifyReport report = verify(request);
  for (const VerifyRow& row : report.rows) {
    EXPECT_TRUE(row.passed()) << row.strategy << " " << row.options.dump() << ": " << row.failure;
  }
}

bool nccl_takes_several_ranks_per_gpu(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 && (major > 2 || minor >= 30);
}

TEST(Cuda, EveryStrategyAgreesWithTheReferenceInAWorldOfOne) {
  if (visible_gpus() == 0) {
    GTEST_SKIP() << "no GPU here: nothing was tested on cuda";
  }
  expect_all_agree({{}, 1, "cuda", {}});
}

TEST(Cuda, EveryStrategyAgreesWithTheReferenceOnOneRankPerGpu) {
  if (visible_gpus() < 2) {
    GTEST_SKIP() << "needs 2 GPUs, there are " << visible_gpus();
  }
  expect_all_agree({{}, 2, "cuda", {}});
}

TEST(Cuda, TwoRanksOnOneGpuAgreeWithTheReference) {
  if (visible_gpus() != 1) {
    GTEST_SKIP() << "needs exactly 1 GPU, there are " << visible_gpus();
  }
  const std::string version = library_versions().at("nccl").get<std::string>();
  if (!nccl_takes_several_ranks_per_gpu(version)) {
    GTEST_SKIP() << "NCCL " << version << " refuses two ranks on one GPU; 2.30 and later take them";
  }
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  ::setenv("NCCL_NVLS_ENABLE", "0", 1);
  expect_all_agree({{"sync", "averaged", "shuffle"}, 2, "cuda", {}});
}

}  // namespace
}  // namespace bnlab
