// Which rows of a batch are normalised together: the towers, or the virtual batches inside them. Known from
// sizes alone, so that every rank knows those of all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/pass.hpp"

namespace bnlab {

struct Sets {
  std::vector<int64_t> offsets;      // rows of this rank's sets, as the kernels take them
  std::vector<int64_t> elements;     // per channel, of all sets of all ranks
  std::vector<int64_t> local_tower;  // of each of this rank's sets, from 0
  int64_t first = 0;                 // this rank's first set
  std::vector<int64_t> towers;       // elements per channel of every tower
};

// positions: elements per row and channel. virtual_batch: samples per set, 0 for whole towers. An empty tower
// is one empty set.
Sets sets_of(const Pass& pass, int64_t positions, int64_t virtual_batch);

// Sums over groups of consecutive entries.
std::vector<int64_t> sums_of_groups(const std::vector<int64_t>& elements, int64_t group);

}  // namespace bnlab
