#include "harness/tasks/sampler.hpp"

#include "harness/error.hpp"
#include "harness/random.hpp"

namespace bnlab {

Sampler::Sampler(uint64_t seed, int64_t training_samples) : seed_(seed), size_(training_samples) {
  if (size_ < 1) {
    throw Error(Error::Kind::data, "the task has no training samples");
  }
}

std::vector<Draw> Sampler::draws(int64_t begin, int64_t count) {
  std::vector<Draw> drawn;
  drawn.reserve(static_cast<size_t>(count));
  for (int64_t entry = begin; entry < begin + count; ++entry) {
    const int64_t epoch = entry / size_;
    drawn.push_back({permutation(epoch)[static_cast<size_t>(entry % size_)], epoch});
  }
  return drawn;
}

const std::vector<int64_t>& Sampler::permutation(int64_t epoch) {
  if (epoch != epoch_) {
    order_ = Stream(seed_, "order", static_cast<uint64_t>(epoch)).permutation(size_);
    epoch_ = epoch;
  }
  return order_;
}

}  // namespace bnlab
