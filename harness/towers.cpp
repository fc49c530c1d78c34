#include "harness/towers.hpp"

#include <string>

#include "harness/support/error.hpp"

namespace bnlab {

Towers::Towers(std::vector<int64_t> samples, int ranks, int rank, std::vector<int64_t> positions)
    : samples_(std::move(samples)), positions_(std::move(positions)), ranks_(ranks), rank_(rank) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw Error(Error::Kind::refused, "towers: rank " + std::to_string(rank) + " of " +
                                          std::to_string(ranks) + " ranks does not exist");
  }
  if (samples_.empty() || count() % ranks != 0) {
    throw Error(Error::Kind::refused, "towers: the number of ranks (" + std::to_string(ranks) +
                                          ") must divide the number of towers (" + std::to_string(count()) +
                                          ")");
  }
  for (const int64_t n : samples_) {
    if (n < 0)
      throw Error(Error::Kind::refused, "towers: a tower cannot hold " + std::to_string(n) + " samples");
    offsets_.push_back(offsets_.back() + n);
  }
  per_rank_ = count() / ranks;
  first_ = per_rank_ * rank;
}

std::vector<int64_t> Towers::local_offsets() const {
  std::vector<int64_t> offsets{0};
  for (int64_t t = first_; t < first_ + per_rank_; ++t) offsets.push_back(offsets.back() + samples(t));
  return offsets;
}

}  // namespace bnlab
