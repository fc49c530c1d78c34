#include "harness/tasks/sampler.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "harness/support/error.hpp"
#include "harness/support/random.hpp"

namespace bnlab {
namespace {

std::vector<int64_t> indices(int64_t count) {
  if (count < 1) throw Error(Error::Kind::data, "the task has no training samples");
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// Where the share of a tower ends among so many sorted samples.
int64_t share_end(int64_t samples, int64_t tower, const Towers& towers) {
  return samples * towers.offset(tower + 1) / towers.total_samples();
}

}  // namespace

Sampler Sampler::iid(uint64_t seed, int64_t training_samples, const Towers& towers) {
  return Sampler({{Shard(seed, "order", indices(training_samples)), towers.total_samples(),
                   towers.local_begin(), towers.local_samples()}});
}

Sampler Sampler::sorted(uint64_t seed, const std::vector<double>& values, const Towers& towers) {
  const auto size = static_cast<int64_t>(values.size());
  std::vector<int64_t> order = indices(size);
  std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] < values[static_cast<size_t>(b)];
  });
  std::vector<Share> shares;
  int64_t end = 0;
  for (int64_t t = 0; t < towers.count(); ++t) {  // all towers, so that every rank refuses alike
    const int64_t begin = std::exchange(end, share_end(size, t, towers));
    if (begin == end && towers.samples(t) > 0) {
      throw Error(Error::Kind::refused, "shards: tower " + std::to_string(t) + " would own none of the " +
                                            std::to_string(size) +
                                            " training samples; use more of them, or fewer towers");
    }
    if (towers.is_local(t) && begin < end) {
      shares.push_back({.shard = Shard(seed, "order/tower" + std::to_string(t),
                                       std::vector<int64_t>(order.begin() + begin, order.begin() + end)),
                        .stride = towers.samples(t),
                        .begin = 0,
                        .count = towers.samples(t)});
    }
  }
  return Sampler(std::move(shares));
}

std::vector<int64_t> towers_of(const std::vector<double>& test_values,
                               const std::vector<double>& training_values, const Towers& towers) {
  std::vector<double> sorted = training_values;
  std::ranges::sort(sorted);
  const auto size = std::ssize(sorted);
  std::map<double, int64_t> having, seen;
  for (const double value : test_values) ++having[value];
  std::vector<int64_t> belongs;
  for (const double value : test_values) {
    const auto equal = std::ranges::equal_range(sorted, value);
    const int64_t first = std::min(equal.begin() - sorted.begin(), size - 1);
    const int64_t place = first + std::ssize(equal) * seen[value]++ / having[value];
    int64_t tower = 0;
    while (place >= share_end(size, tower, towers)) ++tower;
    belongs.push_back(tower);
  }
  return belongs;
}

std::vector<Draw> Sampler::batch(int64_t step) {
  std::vector<Draw> drawn;
  for (Share& share : shares_)
    for (int64_t i = 0; i < share.count; ++i)
      drawn.push_back(share.shard.entry(step * share.stride + share.begin + i));
  return drawn;
}

Sampler::Shard::Shard(uint64_t seed, std::string purpose, std::vector<int64_t> samples)
    : seed_(seed), purpose_(std::move(purpose)), samples_(std::move(samples)) {}

Draw Sampler::Shard::entry(int64_t index) {
  const auto size = static_cast<int64_t>(samples_.size());
  const int64_t epoch = index / size;
  if (epoch != epoch_) {
    order_ = Stream(seed_, purpose_, static_cast<uint64_t>(epoch)).permutation(size);
    epoch_ = epoch;
  }
  return {samples_[static_cast<size_t>(order_[static_cast<size_t>(index % size)])], epoch};
}

}  // namespace bnlab
