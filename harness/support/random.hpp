// Explicit random streams. A stream is named by (seed, purpose, index), so that a draw never depends
// on the strategy, on the placement or on what was drawn elsewhere.
// Generator: xoshiro256** seeded by splitmix64 (Blackman and Vigna, 2018).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bnlab {

class Stream {
 public:
  Stream(uint64_t seed, std::string_view purpose, uint64_t index = 0);

  uint64_t bits();                                 // 64 random bits
  double uniform();                                // in [0, 1)
  double uniform(double low, double high);         // in [low, high)
  double normal();                                 // mean 0, standard deviation 1
  int64_t below(int64_t limit);                    // in [0, limit), limit > 0, without bias
  std::vector<int64_t> permutation(int64_t size);  // 0 .. size-1 (Fisher and Yates)

 private:
  std::array<uint64_t, 4> state_;
};

}  // namespace bnlab
