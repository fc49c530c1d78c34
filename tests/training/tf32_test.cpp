// float32 is IEEE float32 on GPUs too, unless a spec says otherwise; a layer case always is. What a spec says
// of algorithms holds for its run alone.
#include "harness/support/tf32.hpp"

#include <gtest/gtest.h>

#include "harness/layer/layer_case.hpp"
#include "harness/verify/cases.hpp"
#include "tests/training/training_runs.hpp"

namespace bnlab {
namespace {

bool is_ieee() {
  return !at::globalContext().allowTF32CuDNN(at::Float32Op::CONV) && !at::globalContext().allowTF32CuBLAS();
}

TEST(Tf32, IsOffUnlessTheSpecAsksForIt) {
  TrainingRuns runs;
  runs.run(TrainingRuns::spec({{"tf32", true}}), 1);
  EXPECT_FALSE(is_ieee());
  runs.run(TrainingRuns::spec(), 1);
  EXPECT_TRUE(is_ieee());
}

TEST(Deterministic, AlgorithmsAreAskedForByTheSpec) {
  TrainingRuns runs;
  const at::Context& context = at::globalContext();
  runs.run(TrainingRuns::spec({{"deterministic", true}}), 1);
  EXPECT_TRUE(context.deterministicAlgorithms() && context.deterministicCuDNN() && !context.benchmarkCuDNN());
  runs.run(TrainingRuns::spec(), 1);
  EXPECT_FALSE(context.deterministicAlgorithms() || context.deterministicCuDNN() ||
               !context.benchmarkCuDNN());
}

TEST(Tf32, IsOffInLayerCasesAndThusInVerify) {
  allow_tf32(true);
  apply_layer(make_case("sync", {{2, 2}, {4}}));
  EXPECT_TRUE(is_ieee());
}

}  // namespace
}  // namespace bnlab
