// Whether an answer is the expected one: errors relative to the largest value of each tensor, and their
// bounds, which every comparison of layers goes by.
#pragma once

#include <string>

#include "harness/layer/layer_case.hpp"

namespace bnlab {

struct AnswerComparison {
  double worst = 0;     // largest error over all tensors, divided by the magnification
  std::string failure;  // the first difference beyond its bound, or "" if there is none
};

// `expected` as a Reference gives it. `magnification` (at least 1) widens all bounds. Beside the values it
// looks at dtypes, at memory formats, and that an evaluation by the saved pair exchanges nothing.
AnswerComparison compare(const LayerCase& layer_case, const LayerAnswer& expected, const LayerAnswer& answer,
                         double magnification = 1);

// Largest |a - b| relative to the largest |b|; infinite where only one of them is a number.
double relative_error(const at::Tensor& a, const at::Tensor& b);

}  // namespace bnlab
