// The one table of cases that every strategy is held to, by `bnlab verify` and by the tests: towers even,
// uneven and empty; inputs of two to five dimensions; all dtypes and memory formats; means far from zero; a
// value that is no number; running statistics that meet after several steps only. Each goes through three
// training steps, an evaluation by the saved pair, one by the batch's own moments and a training step after
// them. Values come from streams of harness/support/random, so they are the same everywhere.
#pragma once

#include <string>
#include <vector>

#include "harness/verify/reference.hpp"

namespace bnlab {

// What a case looks like.
struct CaseShape {
  std::vector<int64_t> towers;           // samples of each; an evaluation has one more
  std::vector<int64_t> sample{8, 2, 3};  // channels and positions
  std::vector<Mode> modes{Mode::train};  // one per step; all have gradients
  at::ScalarType dtype = at::kDouble;
  at::MemoryFormat memory_format = at::MemoryFormat::Contiguous;
  Activation activation = Activation::none;
  double mean = 0;        // the towers' means are half a unit apart
  double deviation = 2;   // inside a tower
  bool has_state = true;  // parameters and running statistics of its own, where the strategy has them
  uint64_t seed = 1;
  int64_t accumulate = 1;  // LayerCase
  bool statistics_per_step = false;
};

// A case of this shape for a strategy (resolved or not); a convolution's size goes by the seed.
LayerCase make_case(const Json& strategy, const CaseShape& shape);

struct VerifyCase {
  std::string group;  // what it is there for: "empty towers"
  std::string text;   // "float32, channels_last, towers of 6, 0 samples, [n, 8, 3, 4], relu"
  LayerCase layer_case;
  double magnification = 1;  // by how much the data enlarge rounding errors: |mean| / standard deviation
};

std::string dtype_name(at::ScalarType dtype);  // "float64", "float32", "bfloat16" or "float16"

std::vector<VerifyCase> verify_cases(const Json& strategy);  // resolved

}  // namespace bnlab
