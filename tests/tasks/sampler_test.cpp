#include "harness/tasks/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"

namespace bnlab::sampler_test {
namespace {

std::vector<int64_t> samples(const std::vector<Draw>& draws) {
  std::vector<int64_t> all;
  for (const Draw& draw : draws) all.push_back(draw.sample);
  return all;
}

// Steps 0 .. steps-1 of all ranks together, in the order of the towers.
std::vector<Draw> global_batches(const std::function<Sampler(const Towers&)>& make,
                                 const std::vector<int64_t>& sizes, int ranks, int64_t steps) {
  std::vector<Sampler> samplers;
  for (int rank = 0; rank < ranks; ++rank) samplers.push_back(make(Towers(sizes, ranks, rank)));
  std::vector<Draw> all;
  for (int64_t step = 0; step < steps; ++step) {
    for (Sampler& sampler : samplers) {
      const auto part = sampler.batch(step);
      all.insert(all.end(), part.begin(), part.end());
    }
  }
  return all;
}

std::vector<Draw> iid_batches(uint64_t seed, int64_t samples, const std::vector<int64_t>& sizes, int ranks,
                              int64_t steps) {
  return global_batches([&](const Towers& towers) { return Sampler::iid(seed, samples, towers); }, sizes,
                        ranks, steps);
}

// The samples that each tower sees in its first `steps` batches.
std::vector<std::vector<int64_t>> by_tower(const std::vector<Draw>& draws,
                                           const std::vector<int64_t>& sizes) {
  std::vector<std::vector<int64_t>> seen(sizes.size());
  for (size_t next = 0; next < draws.size();) {
    for (size_t t = 0; t < sizes.size(); ++t)
      for (int64_t i = 0; i < sizes[t]; ++i) seen[t].push_back(draws[next++].sample);
  }
  return seen;
}

TEST(IidSampler, IsTheStreamOfPermutationsCutIntoGlobalBatches) {
  std::vector<int64_t> expected;
  for (uint64_t epoch = 0; epoch < 3; ++epoch) {
    const auto order = Stream(3, "order", epoch).permutation(10);
    expected.insert(expected.end(), order.begin(), order.end());
  }
  const auto draws = iid_batches(3, 10, {3, 0, 1, 2}, 1, 5);  // batches of 6 straddle the epochs of 10
  EXPECT_EQ(samples(draws), expected);
  for (size_t i = 0; i < draws.size(); ++i) EXPECT_EQ(draws[i].epoch, static_cast<int64_t>(i / 10));
}

TEST(IidSampler, BatchesLargerThanTheSetRunThroughSeveralEpochs) {
  const auto draws = iid_batches(3, 4, {9}, 1, 1);
  ASSERT_EQ(draws.size(), 9u);
  EXPECT_EQ(draws[3].epoch, 0);
  EXPECT_EQ(draws[4].epoch, 1);
  EXPECT_EQ(draws[8].epoch, 2);
}

TEST(IidSampler, ThePlacementChangesNothing) {
  const auto one = iid_batches(7, 10, {2, 1, 3, 2}, 1, 6);
  EXPECT_EQ(samples(iid_batches(7, 10, {2, 1, 3, 2}, 2, 6)), samples(one));
  EXPECT_EQ(samples(iid_batches(7, 10, {2, 1, 3, 2}, 4, 6)), samples(one));
}

TEST(IidSampler, StepsCanBeReadInAnyOrder) {
  Sampler forth = Sampler::iid(7, 10, Towers({4}, 1, 0)), back = forth;
  std::vector<std::vector<int64_t>> expected;
  for (int64_t step = 0; step < 6; ++step) expected.push_back(samples(forth.batch(step)));
  for (int64_t step = 5; step >= 0; --step)
    EXPECT_EQ(samples(back.batch(step)), expected[static_cast<size_t>(step)]) << "step " << step;
}

TEST(IidSampler, OrdersDifferBetweenSeedsAndEpochs) {
  const auto one = iid_batches(1, 50, {50}, 1, 1), two = iid_batches(2, 50, {50}, 1, 1);
  EXPECT_NE(samples(one), samples(two));
  EXPECT_NE(samples(one), samples(Sampler::iid(1, 50, Towers({50}, 1, 0)).batch(1)));
}

TEST(IidSampler, RefusesAnEmptySet) {
  EXPECT_THROW(Sampler::iid(0, 0, Towers({1}, 1, 0)), Error);
}

const std::vector<double> kValues = {5, 1, 5, 0, 2, 1, 9, 5, 3, 0, 8, 7, 1, 4, 6, 2};
// sorted by (value, index): 3 9 | 1 5 12 | 4 15 | 8 | 13 | 0 2 7 | 14 | 11 | 10 | 6
const std::vector<int64_t> kOrder = {3, 9, 1, 5, 12, 4, 15, 8, 13, 0, 2, 7, 14, 11, 10, 6};

std::vector<Draw> sorted_batches(const std::vector<int64_t>& sizes, int ranks, int64_t steps) {
  return global_batches([](const Towers& towers) { return Sampler::sorted(3, kValues, towers); }, sizes,
                        ranks, steps);
}

TEST(SortedSampler, EachTowerGoesThroughItsShareOnceAnEpoch) {
  // Offsets 0 1 4 4 6 of 6: the shares end at floor(16/6) = 2, floor(64/6) = 10, 10 and 16.
  const std::vector<int64_t> sizes = {1, 3, 0, 2}, ends = {0, 2, 10, 10, 16};
  const auto seen = by_tower(sorted_batches(sizes, 1, 24), sizes);
  for (size_t t = 0; t < sizes.size(); ++t) {
    SCOPED_TRACE("tower " + std::to_string(t));
    std::vector<int64_t> share(kOrder.begin() + ends[t], kOrder.begin() + ends[t + 1]);
    std::sort(share.begin(), share.end());
    EXPECT_EQ(seen[t].size(), static_cast<size_t>(24 * sizes[t]));
    for (size_t begin = 0; begin < seen[t].size(); begin += share.size()) {
      std::vector<int64_t> epoch(seen[t].begin() + static_cast<std::ptrdiff_t>(begin),
                                 seen[t].begin() + static_cast<std::ptrdiff_t>(begin + share.size()));
      std::sort(epoch.begin(), epoch.end());
      EXPECT_EQ(epoch, share);
    }
  }
}

TEST(SortedSampler, EachTowerHasAStreamOfItsOwn) {
  const std::vector<int64_t> sizes = {4, 4};
  const auto draws = sorted_batches(sizes, 1, 4);
  const auto seen = by_tower(draws, sizes);
  for (size_t t = 0; t < 2; ++t) {
    std::vector<int64_t> expected;
    for (uint64_t epoch = 0; epoch < 2; ++epoch)
      for (const int64_t i : Stream(3, "order/tower" + std::to_string(t), epoch).permutation(8))
        expected.push_back(kOrder[8 * t + static_cast<size_t>(i)]);
    EXPECT_EQ(seen[t], expected) << "tower " << t;
  }
  EXPECT_EQ(draws.front().epoch, 0);
  EXPECT_EQ(draws.back().epoch, 1);
}

TEST(SortedSampler, EqualValuesStayInTheOrderOfTheSet) {
  Sampler second = Sampler::sorted(3, std::vector<double>(200, 1.0), Towers({50, 50}, 2, 1));
  std::vector<int64_t> seen = samples(second.batch(0));
  const auto rest = samples(second.batch(1));
  seen.insert(seen.end(), rest.begin(), rest.end());
  std::sort(seen.begin(), seen.end());
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], 100 + i);
}

TEST(SortedSampler, ThePlacementChangesNothing) {
  const std::vector<int64_t> sizes = {2, 1, 0, 3};
  const auto one = sorted_batches(sizes, 1, 8);
  EXPECT_EQ(samples(sorted_batches(sizes, 2, 8)), samples(one));
  EXPECT_EQ(samples(sorted_batches(sizes, 4, 8)), samples(one));
}

TEST(SortedSampler, RefusesATowerWithoutAShareOnEveryRank) {
  const std::vector<int64_t> sizes = {100, 1, 1, 100};
  for (int rank = 0; rank < 4; ++rank) {
    try {
      Sampler::sorted(3, kValues, Towers(sizes, 4, rank));
      ADD_FAILURE() << "no error on rank " << rank;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::refused);
      EXPECT_NE(std::string(error.what()).find("tower 2 would own none of the 16"), std::string::npos)
          << error.what();
    }
  }
}

TEST(TowersOf, ATestSampleBelongsToTheTowerInWhoseShareItsValueStands) {
  const std::vector<double> training = {3, 1, 2, 5, 4, 6, 8, 7};  // shares of 2: 1 2 | 3 4 | 5 6 | 7 8
  const Towers towers({1, 1, 1, 1}, 1, 0);
  EXPECT_EQ(towers_of({8, 1, 4.5, 3, 0, 99}, training, towers), (std::vector<int64_t>{3, 0, 2, 1, 0, 3}));
}

// Six of eight training samples have the value 1, in the shares of three towers, the last of which has two
// thirds of the others' number of them.
TEST(TowersOf, SamplesOfOneValueAreDealtAsTheTrainingSamplesAre) {
  const std::vector<double> training = {0, 1, 1, 1, 1, 1, 1, 2};  // 0 1 1 | 1 1 1 | 1 2
  const Towers towers({3, 3, 2}, 1, 0);
  EXPECT_EQ(towers_of({1, 1, 2, 1, 0, 1, 1, 1}, training, towers),
            (std::vector<int64_t>{0, 0, 2, 1, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace bnlab::sampler_test
