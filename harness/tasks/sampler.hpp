// The order of training samples: an endless stream of permutations, one per epoch, cut into global
// batches. No remainder is dropped, and the stream depends on the seed alone.
#pragma once

#include <cstdint>
#include <vector>

#include "harness/tasks/task.hpp"

namespace bnlab {

class Sampler {
 public:
  Sampler(uint64_t seed, int64_t training_samples);

  // Entries [begin, begin + count) of the stream.
  std::vector<Draw> draws(int64_t begin, int64_t count);

 private:
  const std::vector<int64_t>& permutation(int64_t epoch);

  uint64_t seed_;
  int64_t size_;
  int64_t epoch_ = -1;  // of order_
  std::vector<int64_t> order_;
};

}  // namespace bnlab
