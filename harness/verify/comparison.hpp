// Whether an answer is the expected one: errors relative to the largest value of each tensor, and their
// bounds, which every comparison of layers goes by.
#pragma once

#include <functional>
#include <string>

#include "harness/layer/layer_case.hpp"
#include "harness/verify/cases.hpp"

namespace bnlab {

struct AnswerComparison {
  double worst = 0;     // largest error over all tensors, divided by the magnification
  std::string failure;  // the first difference beyond its bound, or "" if there is none
};

// `expected` as a Reference gives it. `magnification` (at least 1) widens all bounds. Beside the values it
// looks at dtypes, at memory formats, and that an evaluation by the saved pair exchanges nothing.
AnswerComparison compare(const LayerCase& layer_case, const LayerAnswer& expected, const LayerAnswer& answer,
                         double magnification = 1);

// The largest relative error of statistics and of gradients of parameters, which are never narrower than
// float32, and of values that have this dtype.
double statistics_bound(at::ScalarType dtype);
double values_bound(at::ScalarType dtype);

// Largest |a - b| relative to the largest |b|; infinite where only one of them is a number.
double relative_error(const at::Tensor& a, const at::Tensor& b);

// What came of a case: an answer, or the message of a refusal or of a failure.
struct CaseOutcome {
  LayerAnswer answer;
  std::string refusal, failure;
};

CaseOutcome outcome_of(const std::function<LayerAnswer()>& apply);

// What a strategy must do with a case by its reference, and whether it does: answer alike or refuse. One
// case, for any number of placements.
class Expectation {
 public:
  // Computes what the reference answers; the case outlives this.
  Expectation(const VerifyCase& verify_case, const Reference& reference);

  bool is_refusal() const { return !expected_.refusal.empty(); }
  // Never throws what `apply` throws: it is part of the verdict.
  AnswerComparison verdict(const std::function<LayerAnswer()>& apply) const;

 private:
  const VerifyCase& case_;
  CaseOutcome expected_;
  double magnification_;
};

}  // namespace bnlab
