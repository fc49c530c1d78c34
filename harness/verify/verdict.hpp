// What a strategy must do with a case by its reference, and whether it does: answer alike or refuse.
#pragma once

#include <functional>
#include <string>

#include "harness/verify/cases.hpp"
#include "harness/verify/comparison.hpp"

namespace bnlab {

// What came of a case: an answer, or the message of a refusal or of a failure.
struct CaseOutcome {
  LayerAnswer answer;
  std::string refusal, failure;
};

CaseOutcome outcome_of(const std::function<LayerAnswer()>& apply);

// One case, for any number of placements.
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
