// Random tensors, and numbers compared within bounds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/emulation/tensor.hpp"

namespace bnlab::kernels::emulated {

// Half the distance of two neighbouring numbers, relative, and the distance next to zero.
inline double rounding(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 0x1p-53;
    case at::kFloat:
      return 0x1p-24;
    case at::kBFloat16:
      return 0x1p-8;
    default:
      return 0x1p-11;
  }
}
inline double smallest(at::ScalarType type) {
  return type == at::kHalf ? 0x1p-24 : 1e-37;
}

inline at::Tensor filled(const at::Tensor& x, std::mt19937& random, double centre, double spread) {
  std::normal_distribution<double> normal(centre, spread);
  std::vector<double> values(static_cast<size_t>(x.numel()));
  for (double& value : values) value = normal(random);
  x.set_values(values);
  return x;
}

// NaN equals NaN: its sign is the compiler's choice.
inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  const std::vector<double> x = a.values(), y = b.values();
  const auto same = [](double one, double other) {
    return std::isnan(one) ? std::isnan(other) : std::memcmp(&one, &other, sizeof one) == 0;
  };
  return a.sizes() == b.sizes() && std::equal(x.begin(), x.end(), y.begin(), same);
}

// In one of four layouts: contiguous, channels_last, strided, unaligned.
inline at::Tensor empty_in(const std::string& layout, at::Sizes sizes, at::ScalarType type) {
  if (layout == "channels_last") return at::channels_last(sizes, type);
  if (layout == "unaligned") return at::Tensor(sizes, type, /*lead=*/1);
  if (layout == "contiguous") return at::Tensor(sizes, type);
  sizes.push_back(2);
  const at::Tensor wide(sizes, type);
  return wide.select(wide.dim() - 1, 0);  // every other element
}

// Keeps the first mismatch.
class Comparison {
 public:
  void expect(const char* what, int64_t set, int64_t channel, double got, double expected, double bound) {
    const bool right = std::isnan(expected) ? std::isnan(got) : std::abs(got - expected) <= bound;
    if (!right && mismatch_.empty()) {
      std::ostringstream text;
      text.precision(17);
      text << what << ", set " << set << ", channel " << channel << ": got " << got << ", expected "
           << expected << ", allowed " << bound;
      mismatch_ = text.str();
    }
  }
  void expect(bool right, const char* otherwise) {
    if (!right && mismatch_.empty()) mismatch_ = otherwise;
  }
  const std::string& mismatch() const { return mismatch_; }

 private:
  std::string mismatch_;
};

}  // namespace bnlab::kernels::emulated
