#include "harness/support/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace bnlab {
namespace {

TEST(Stream, IsAFunctionOfSeedPurposeAndIndex) {
  EXPECT_EQ(Stream(1, "order", 2).bits(), Stream(1, "order", 2).bits());
  const std::set<uint64_t> draws{Stream(1, "order", 2).bits(), Stream(2, "order", 2).bits(),
                                 Stream(1, "augment", 2).bits(), Stream(1, "order", 3).bits()};
  EXPECT_EQ(draws.size(), 4u);
}

TEST(Stream, NormalHasMeanZeroAndDeviationOne) {
  Stream stream(5, "normal");
  constexpr int kDraws = 20000;
  double sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = stream.normal();
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.03);  // four standard errors
  EXPECT_NEAR(squares / kDraws, 1, 0.04);
}

TEST(Stream, BelowReachesEveryValueAndNoOther) {
  Stream stream(5, "below");
  std::set<int64_t> seen;
  for (int i = 0; i < 500; ++i) seen.insert(stream.below(7));
  EXPECT_EQ(seen, (std::set<int64_t>{0, 1, 2, 3, 4, 5, 6}));
}

TEST(Stream, PermutationHoldsEveryPlaceOnce) {
  std::vector<int64_t> order = Stream(5, "order").permutation(100);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace bnlab
