#include "harness/tasks/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "harness/error.hpp"

namespace bnlab {
namespace {

std::vector<int64_t> samples(const std::vector<Draw>& draws) {
  std::vector<int64_t> all;
  for (const Draw& draw : draws) {
    all.push_back(draw.sample);
  }
  return all;
}

TEST(Sampler, CoversEveryEpochExactlyOnceAcrossBatchBorders) {
  Sampler sampler(3, 10);
  std::vector<int64_t> seen[3];
  for (int64_t begin = 0; begin < 30; begin += 6) {  // batches of 6 straddle the epochs of 10
    for (const Draw& draw : sampler.draws(begin, 6)) {
      seen[draw.epoch].push_back(draw.sample);
    }
  }
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  for (auto& epoch : seen) {
    std::sort(epoch.begin(), epoch.end());
    EXPECT_EQ(epoch, all);
  }
}

TEST(Sampler, BatchesLargerThanTheSetRunThroughSeveralEpochs) {
  Sampler sampler(3, 4);
  const auto draws = sampler.draws(0, 9);
  ASSERT_EQ(draws.size(), 9u);
  EXPECT_EQ(draws[3].epoch, 0);
  EXPECT_EQ(draws[4].epoch, 1);
  EXPECT_EQ(draws[8].epoch, 2);
}

TEST(Sampler, TheStreamDoesNotDependOnHowItIsRead) {
  Sampler whole(7, 10), pieces(7, 10);
  const auto expected = samples(whole.draws(0, 25));
  for (const auto& [begin, count] : std::vector<std::pair<int64_t, int64_t>>{{20, 5}, {0, 7}, {7, 13}}) {
    const auto part = samples(pieces.draws(begin, count));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + begin)) << "from " << begin;
  }
}

TEST(Sampler, OrdersDifferBetweenSeedsAndEpochs) {
  Sampler one(1, 50), two(2, 50);
  EXPECT_NE(samples(one.draws(0, 50)), samples(two.draws(0, 50)));
  EXPECT_NE(samples(one.draws(0, 50)), samples(one.draws(50, 50)));
}

TEST(Sampler, RefusesAnEmptySet) {
  EXPECT_THROW(Sampler(0, 0), Error);
}

}  // namespace
}  // namespace bnlab
