// A trace of two ranks, by hand: who waits for whom, and what Perfetto is given.
#include "harness/transfer/chrome_trace.hpp"

#include <gtest/gtest.h>

namespace bnlab::chrome_trace_test {
namespace {

constexpr int64_t kMs = 1'000'000;

// Rank 0 comes to the site at 1 ms, rank 1 at 4 ms; to the gradients rank 1 comes first, at 8 ms, and rank 0
// at 10.
ActivityOfRanks two_ranks() {
  return {{{"step 12", "step", 0, 12 * kMs},
           {"forward", "part", 0, 6 * kMs},
           {"norm1 forward", "site", 1 * kMs, 5 * kMs},
           {"all_gather", "collective", 1 * kMs, 5 * kMs, 40, "statistics"},
           {"backward", "part", 6 * kMs, 12 * kMs},
           {"all_reduce", "collective", 10 * kMs, 11 * kMs, 400, "gradients"}},
          {{"step 12", "step", 0, 12 * kMs},
           {"forward", "part", 0, 6 * kMs},
           {"norm1 forward", "site", 4 * kMs, 5 * kMs},
           {"all_gather", "collective", 4 * kMs, 5 * kMs, 40, "statistics"},
           {"backward", "part", 6 * kMs, 12 * kMs},
           {"all_reduce", "collective", 8 * kMs, 11 * kMs, 400, "gradients"}}};
}

TEST(Waits, NameTheRankThatCameLastAndThePlace) {
  const std::vector<Wait> waits = waits_of(two_ranks());
  ASSERT_EQ(waits.size(), 2U);
  EXPECT_EQ(waits[0].rank, 0);
  EXPECT_EQ(waits[0].for_rank, 1);
  EXPECT_NEAR(waits[0].seconds, 3e-3, 1e-12);
  EXPECT_EQ(waits[0].collective, "all_gather");
  EXPECT_EQ(waits[0].where, "norm1 forward of step 12");
  EXPECT_EQ(waits[1].rank, 1);
  EXPECT_NEAR(waits[1].seconds, 2e-3, 1e-12);
  EXPECT_EQ(waits[1].where, "gradients in backward of step 12");
}

TEST(Waits, EndWithTheCollectiveOfARankThatOnlySends) {
  ActivityOfRanks ranks = two_ranks();
  ranks[0][3].end_ns = 2 * kMs;
  EXPECT_NEAR(waits_of(ranks).back().seconds, 1e-3, 1e-12);
}

TEST(Waits, AreNotGuessedWhereTheRanksHaveOtherCollectives) {
  ActivityOfRanks ranks = two_ranks();
  ranks[1].pop_back();
  EXPECT_TRUE(waits_of(ranks).empty());
}

TEST(Shares, AreMeansOverRanksAndSteps) {
  const Json shares = shares_of(two_ranks());
  EXPECT_NEAR(shares.at("step").get<double>(), 12e-3, 1e-12);
  EXPECT_NEAR(shares.at("forward").get<double>(), 6e-3, 1e-12);
  EXPECT_NEAR(shares.at("exchange").get<double>(), (4 + 1 + 1 + 3) / 2.0 * 1e-3, 1e-12);
  EXPECT_NEAR(shares.at("waiting").get<double>(), (3 + 2) / 2.0 * 1e-3, 1e-12);
}

TEST(ChromeTrace, HasAProcessForEachRankAndWhatItWaitedFor) {
  const Json trace = chrome_trace(two_ranks());
  const Json& events = trace.at("traceEvents");
  ASSERT_EQ(events.size(), 2U * 7);
  EXPECT_EQ(events[0].at("args").at("name"), "rank 0");
  const Json& gather = events[4];
  EXPECT_EQ(gather.at("name"), "all_gather");
  EXPECT_EQ(gather.at("ph"), "X");
  EXPECT_EQ(gather.at("pid"), 0);
  EXPECT_EQ(gather.at("ts"), 1000.0);
  EXPECT_EQ(gather.at("dur"), 4000.0);
  EXPECT_EQ(gather.at("args").at("bytes"), 40);
  EXPECT_EQ(gather.at("args").at("waited_for_rank"), 1);
  EXPECT_NEAR(gather.at("args").at("waited_us").get<double>(), 3000, 1e-6);
  EXPECT_FALSE(events[7 + 4].at("args").contains("waited_for_rank")) << "the last one waits for nobody";
}

}  // namespace
}  // namespace bnlab::chrome_trace_test
