// Whole runs on a GPU leave what the same runs leave on the CPU. Without a GPU they skip themselves.
#include "harness/components/registry.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

class CudaTraining : public ::testing::TestWithParam<std::string> {};

// In float64; sums are taken in another order, and five steps with momentum let the differences grow.
TEST_P(CudaTraining, DoesWhatTheCpuDoes) {
  if (visible_gpus() == 0) {
    GTEST_SKIP() << "no GPU here: nothing was tested on cuda";
  }
  TrainingRuns runs;
  const RunSpec spec = TrainingRuns::spec({{"strategy", GetParam()}});
  const TrainedRun on_cpu = runs.run(spec, 1), on_gpu = runs.run(spec, 1, "cuda");
  ASSERT_EQ(on_gpu.losses.size(), on_cpu.losses.size());
  for (size_t i = 0; i < on_cpu.losses.size(); ++i) {
    EXPECT_NEAR(on_gpu.losses[i], on_cpu.losses[i], 1e-8) << "step " << i;
  }
  expect_near(on_gpu.tensors, on_cpu.tensors, 1e-8);
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, CudaTraining, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace bnlab
