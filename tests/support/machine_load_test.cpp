#include "harness/support/machine_load.hpp"

#include <gtest/gtest.h>

#include <atomic>

namespace bnlab {
namespace {

TEST(MachineLoad, TimeThatThisProcessComputesIsBusyTimeOfTheCores) {
  const CoreTime cores = core_time();
  const double own = own_core_time();
  std::atomic<double> sum = 0;
  while (own_core_time() - own < 0.2) sum = sum + 1;
  const CoreTime passed = core_time() - cores;
  EXPECT_GE(passed.busy, 0.1);  // counted in ticks of 10 ms on each core
  EXPECT_GE(passed.steal, 0);
  EXPECT_GE(passed.idle, 0);
  EXPECT_GE(load_average(), 0);
}

}  // namespace
}  // namespace bnlab
