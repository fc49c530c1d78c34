// Layer cases made to fit any strategy: sizes that its options allow, weights and running statistics where
// its layer has some, a convolution where its site is one. The values come from a seed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "harness/verify/reference.hpp"

namespace bnlab {

struct CaseShape {
  std::vector<int64_t> towers{3, 2, 4, 3};  // samples; times the strategy's virtual batch
  std::vector<int64_t> rest{8, 2, 3};       // channels and positions
  std::vector<Mode> modes{Mode::train};     // of the steps; training steps have gradients
  double mean = 0;                          // of the inputs, beside what tells the towers apart
  at::ScalarType dtype = at::kDouble;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  uint64_t seed = 11;
};

LayerCase case_for(const Json& strategy, const CaseShape& shape);
// The same without weights and running statistics.
LayerCase bare_case(const Json& strategy, const CaseShape& shape);

std::unique_ptr<Reference> reference_of(const Json& strategy);

// The value of an option of the strategy or, of a wrapper, of its base; null where nobody has it.
Json option(const Json& strategy, const std::string& key);
// A wrapper's base, of a base's base the last; other strategies themselves.
const Json& innermost(const Json& strategy);
// Whether the options allow so many towers (groups divide them, saved towers exist).
bool fits(const Json& strategy, int64_t towers);

// Largest |a - b|, relative to the largest |b| where that is above `floor`.
double deviation(const at::Tensor& a, const at::Tensor& b, double floor = 1);

// Where the answers differ by more than `bound`, one line each: "step 1, output of tower 2: ...".
std::vector<std::string> differences(const LayerAnswer& actual, const LayerAnswer& expected, double bound);

}  // namespace bnlab
