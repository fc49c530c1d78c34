// Every registered strategy, under the variants that its reference names, holds to every check.
#include "tests/verify/conformance.hpp"

#include <gtest/gtest.h>

#include <map>

#include "harness/communicator/thread_ranks.hpp"
#include "harness/verify/reference.hpp"

namespace bnlab {
namespace {

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<Json> variants() {
    std::vector<Json> all;
    for (const Json& options : reference_of({{"name", GetParam()}})->variants()) {
      Json strategy{{"name", GetParam()}};
      strategy.update(options);
      all.push_back(resolved_strategy(strategy));
    }
    return all;
  }

  Applier sound() {
    return [this](const LayerCase& c, int ranks) {
      return apply_layer(c, ranks_.try_emplace(ranks, ranks, at::kCPU).first->second);
    };
  }

 private:
  std::map<int, ThreadRanks> ranks_;
};

TEST_P(Conformance, AnswersTheTableAsItsReference) {
  for (const Json& strategy : variants()) EXPECT_EQ(complaint_of_table(strategy, sound()), "") << strategy;
}

TEST_P(Conformance, HoldsToTheFurtherChecks) {
  for (const Json& strategy : variants()) {
    for (const Check& check : further_checks())
      if (!must_refuse(strategy))
        EXPECT_EQ(check.complaint(strategy, sound()), "") << strategy << ", " << check.name;
  }
}

INSTANTIATE_TEST_SUITE_P(EveryStrategy, Conformance, ::testing::ValuesIn(registered_names("strategy")),
                         [](const auto& each) { return each.param; });

}  // namespace
}  // namespace bnlab
