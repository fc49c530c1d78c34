// Towers: the units of batch-norm statistics, what the literature calls "a GPU".
// The global batch is cut into T consecutive slices, one per tower; the towers are dealt to the ranks
// in contiguous equal shares. Every rank knows the sizes of all towers, so whatever depends on sizes
// alone is decided everywhere alike without an exchange.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace bnlab {

class Towers {
 public:
  Towers() = default;
  // samples[t] >= 0 is the number of samples of tower t. positions[r]: elements per row and channel in towers
  // of rank r, where they are known, of a single layer; else empty. Throws Error (refused)
  // unless the number of ranks divides the number of towers and 0 <= rank < ranks.
  Towers(std::vector<int64_t> samples, int ranks, int rank, std::vector<int64_t> positions = {});

  int64_t count() const { return static_cast<int64_t>(samples_.size()); }  // T, over all ranks
  int64_t per_rank() const { return per_rank_; }
  int64_t first() const { return first_; }  // the first tower of this rank
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  bool is_local(int64_t tower) const { return tower >= first_ && tower < first_ + per_rank_; }

  int64_t samples(int64_t tower) const { return samples_[static_cast<size_t>(tower)]; }
  // Elements per row and channel; `here`, as on this rank, where no others are known.
  int64_t positions(int64_t tower, int64_t here) const {
    return positions_.empty() ? here : positions_[static_cast<size_t>(tower / per_rank_)];
  }
  bool positions_differ() const {
    return std::ranges::adjacent_find(positions_, std::not_equal_to<>()) != positions_.end();
  }
  // Of the tower's first sample in the global batch; of tower T: the end.
  int64_t offset(int64_t tower) const { return offsets_[static_cast<size_t>(tower)]; }
  int64_t total_samples() const { return offsets_.back(); }  // size of the global batch
  // Of the first sample of a rank; of the rank behind the last: the end.
  int64_t begin_of_rank(int rank) const { return offset(per_rank_ * rank); }
  int64_t local_begin() const { return offset(first_); }
  int64_t local_samples() const {
    return begin_of_rank(rank_ + 1) - local_begin();
  }  // size of this rank's slice
  // Offsets of this rank's towers within the rank's own slice: per_rank() + 1 entries from 0.
  std::vector<int64_t> local_offsets() const;

  const std::vector<int64_t>& all_samples() const { return samples_; }

 private:
  std::vector<int64_t> samples_, positions_;
  std::vector<int64_t> offsets_{0};
  int ranks_ = 1;
  int rank_ = 0;
  int64_t per_rank_ = 0;
  int64_t first_ = 0;
};

}  // namespace bnlab
