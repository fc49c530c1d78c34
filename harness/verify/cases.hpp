// The cases of a verification: towers even, uneven and empty; inputs of two to five dimensions; all dtypes
// and memory formats; means far from zero; a value that is no number. Each goes through three training steps,
// an evaluation by the saved pair and one by the batch's own moments. Values come from streams of
// harness/random, so they are the same everywhere.
#pragma once

#include <string>
#include <vector>

#include "harness/verify/reference.hpp"

namespace bnlab {

struct VerifyCase {
  std::string text;  // "float32, channels_last, towers of 6, 0 samples, [n, 8, 3, 4], relu"
  LayerCase layer_case;
  double magnification = 1;  // of rounding errors by the data: |mean| / standard deviation
};

std::string dtype_name(at::ScalarType dtype);  // "float64", "float32", "bfloat16" or "float16"

// `strategy`: resolved.
std::vector<VerifyCase> verify_cases(const Json& strategy, const Reference& reference);

}  // namespace bnlab
