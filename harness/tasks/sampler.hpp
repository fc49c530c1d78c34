// The order of training samples: endless streams of permutations, one per epoch, cut into batches. No
// remainder is dropped. The streams depend on the seed and, where the training set is cut into shards, on the
// tower; they never depend on the placement.
//   iid     one stream over the whole set; global batch k is its entries [k N, (k + 1) N)
//   sorted  the samples sorted by a value are cut into one contiguous share per tower, in proportion to the
//           towers' batch sizes, from which the tower draws by a stream of its own: of S samples tower t owns
//           [floor(S offset(t) / N), floor(S offset(t + 1) / N)). The skew is as strong as it can be.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/tasks/task.hpp"
#include "harness/towers.hpp"

namespace bnlab {

class Sampler {
 public:
  // Throws Error (data) if there are no training samples.
  static Sampler iid(uint64_t seed, int64_t training_samples, const Towers& towers);
  // values: of each training sample (Task::sort_values); equal ones stay in the order of the set. Throws
  // Error (refused) if a tower that has samples in the batch would own none of the set.
  static Sampler sorted(uint64_t seed, const std::vector<double>& values, const Towers& towers);

  // What this rank's towers train on at a step, tower by tower: [towers.local_samples()].
  std::vector<Draw> batch(int64_t step);

 private:
  // Some of the training samples, in an endless stream of permutations.
  class Shard {
   public:
    Shard(uint64_t seed, std::string purpose, std::vector<int64_t> samples);
    Draw entry(int64_t index);

   private:
    uint64_t seed_;
    std::string purpose_;  // names the random stream
    std::vector<int64_t> samples_;
    int64_t epoch_ = -1;  // when order_ was drawn
    std::vector<int64_t> order_;
  };

  // What this rank takes of a shard: at step k the entries [k stride + begin, k stride + begin + count).
  struct Share {
    Shard shard;
    int64_t stride;
    int64_t begin;
    int64_t count;
  };

  explicit Sampler(std::vector<Share> shares) : shares_(std::move(shares)) {}

  std::vector<Share> shares_;
};

// To which tower of Sampler::sorted's each test sample belongs, by its value beside those of the training
// samples: the tower in whose share the value stands. Where a value stands in the shares of several towers,
// the test samples that have it are dealt to them in their order, as many to each as its share of the
// training samples with that value.
std::vector<int64_t> towers_of(const std::vector<double>& test_values,
                               const std::vector<double>& training_values, const Towers& towers);

}  // namespace bnlab
