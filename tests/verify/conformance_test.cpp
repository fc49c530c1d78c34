// Every registered strategy, under the variants that its reference names, holds to every check.
#include "tests/verify/conformance.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <map>

#include "harness/communicator/thread_ranks.hpp"

namespace bnlab {
namespace {

class Conformance : public ::testing::TestWithParam<Json> {
 protected:
  Conformance() { at::set_num_threads(1); }  // the tensors are far too small for more
  static void TearDownTestSuite() { ranks_.clear(); }

  static LayerAnswer sound(const LayerCase& c, int ranks) {
    return apply_layer(c, ranks_.try_emplace(ranks, ranks, at::kCPU).first->second);
  }

 private:
  static inline std::map<int, ThreadRanks> ranks_;  // of all cases, because joining takes long
};

TEST_P(Conformance, AnswersTheTableAsItsReference) {
  EXPECT_EQ(complaint_of_table(GetParam(), sound), "");
}

TEST_P(Conformance, HoldsToTheFurtherChecks) {
  if (must_refuse(GetParam())) return;
  for (const Check& check : further_checks()) EXPECT_EQ(check.complaint(GetParam(), sound), "") << check.name;
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Conformance,
                         ::testing::ValuesIn(variants_of(registered_names("strategy"))), name_of_variant);

}  // namespace
}  // namespace bnlab
