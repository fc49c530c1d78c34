#include "harness/towers.hpp"

#include <gtest/gtest.h>

#include "harness/support/error.hpp"

namespace bnlab {
namespace {

TEST(Towers, DealsContiguousSharesToTheRanks) {
  const Towers towers({2, 0, 3, 1}, 2, 1);
  EXPECT_EQ(towers.count(), 4);
  EXPECT_EQ(towers.per_rank(), 2);
  EXPECT_EQ(towers.first(), 2);
  EXPECT_EQ(towers.offset(2), 2);
  EXPECT_EQ(towers.total_samples(), 6);
  EXPECT_EQ(towers.local_begin(), 2);
  EXPECT_EQ(towers.local_samples(), 4);
  EXPECT_EQ(towers.local_offsets(), (std::vector<int64_t>{0, 3, 4}));
  EXPECT_TRUE(towers.is_local(3));
  EXPECT_FALSE(towers.is_local(1));
}

TEST(Towers, SharesOfAllRanksCoverTheBatchOnce) {
  for (const int ranks : {1, 2, 3, 6}) {
    int64_t next = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const Towers towers({3, 1, 0, 2, 5, 1}, ranks, rank);
      EXPECT_EQ(towers.local_begin(), next);
      for (int other = 0; other < ranks; ++other)
        EXPECT_EQ(towers.begin_of_rank(other), Towers(towers.all_samples(), ranks, other).local_begin());
      next += towers.local_samples();
      EXPECT_EQ(towers.begin_of_rank(rank + 1), next);
    }
    EXPECT_EQ(next, 12);
  }
}

TEST(Towers, RefusesRanksThatDoNotDivideTheTowers) {
  EXPECT_THROW(Towers({1, 1, 1}, 2, 0), Error);
  EXPECT_THROW(Towers({1, 1}, 2, 2), Error);
  EXPECT_THROW(Towers({1, -1}, 1, 0), Error);
}

}  // namespace
}  // namespace bnlab
