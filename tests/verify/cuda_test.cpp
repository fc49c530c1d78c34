// Every strategy on GPUs against the float64 reference, over NCCL: a world of one, one rank per GPU, and two
// ranks on one GPU where the installed NCCL allows it. Without a GPU these tests skip themselves.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/nccl.hpp"
#include "harness/communicator/thread_ranks.hpp"
#include "harness/components/registry.hpp"
#include "harness/verify/reference.hpp"
#include "harness/verify/verify.hpp"
#include "tests/verify/conformance.hpp"

namespace bnlab {
namespace {

void expect_agrees(const VerifyRow& row) {
  EXPECT_TRUE(row.passed()) << row.strategy << " " << row.options.dump() << ": " << row.failure;
}

void expect_all_agree(const VerifyRequest& request) {
  const VerifyReport report = verify(request);
  for (const VerifyRow& row : report.rows) expect_agrees(row);
}

bool nccl_takes_several_ranks_per_gpu(const std::string& version) {
  int major = 0, minor = 0;
  return std::sscanf(version.c_str(), "%d.%d", &major, &minor) == 2 && (major > 2 || minor >= 30);
}

// One test for each strategy, since all of them in one would take minutes.
class Cuda : public ::testing::TestWithParam<std::string> {};

TEST_P(Cuda, AgreesWithTheReferenceInAWorldOfOne) {
  if (visible_gpus() == 0) GTEST_SKIP() << "no GPU here: nothing was tested on cuda";
  expect_all_agree({{GetParam()}, 1, "cuda", {}});
}

TEST_P(Cuda, AgreesWithTheReferenceOnOneRankPerGpu) {
  if (visible_gpus() < 2) GTEST_SKIP() << "needs 2 GPUs, there are " << visible_gpus();
  expect_all_agree({{GetParam()}, 2, "cuda", {}});
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Cuda, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) { return info.param; });

// ctest gives it processes of its own: CUDA and NCCL read their variables once.
class CudaSharedGpu : public ::testing::TestWithParam<Json> {
 protected:
  static void TearDownTestSuite() { placements_.clear(); }
  static inline std::vector<VerifyPlacement> placements_{{"cuda", 1}, {"cuda", 2}};  // whose ranks join once
};

TEST_P(CudaSharedGpu, TwoRanksOnOneGpuAgreeWithTheReference) {
  const std::string version = nccl_version();
  if (!nccl_takes_several_ranks_per_gpu(version))
    GTEST_SKIP() << "NCCL " << version << " refuses two ranks on one GPU; 2.30 and later take them";
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  at::set_num_threads(1);
  prepare_thread_ranks();
  if (visible_gpus() != 1) GTEST_SKIP() << "needs exactly 1 GPU, there are " << visible_gpus();
  expect_agrees(verify_variant(GetParam(), reference_of(GetParam()).get(), placements_));
}

INSTANTIATE_TEST_SUITE_P(EveryVariant, CudaSharedGpu,
                         ::testing::ValuesIn(variants_of({"sync", "averaged", "shuffle"})), name_of_variant);

}  // namespace
}  // namespace bnlab
