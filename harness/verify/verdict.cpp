#include "harness/verify/verdict.hpp"

#include "harness/error.hpp"

namespace bnlab {
namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// The message by which sets of one value are refused is the same everywhere, so that all ranks throw alike.
bool is_other_message(const std::string& expected, const std::string& got) {
  return expected.rfind("more than 1 value per channel", 0) == 0 && got != expected;
}

}  // namespace

CaseOutcome outcome_of(const std::function<LayerAnswer()>& apply) {
  CaseOutcome outcome;
  try {
    outcome.answer = apply();
  } catch (const Error& error) {
    const bool refused = error.kind() == Error::Kind::refused || error.kind() == Error::Kind::spec;
    (refused ? outcome.refusal : outcome.failure) = error.what();
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

Expectation::Expectation(const VerifyCase& verify_case, const Reference& reference)
    : case_(verify_case),
      expected_(outcome_of([&] { return reference.answer(verify_case.layer_case); })),
      magnification_(verify_case.magnification * reference.conditioning(verify_case.layer_case)) {}

AnswerComparison Expectation::verdict(const std::function<LayerAnswer()>& apply) const {
  if (!expected_.failure.empty()) {
    return {0, "the reference fails: " + first_line(expected_.failure)};
  }
  const CaseOutcome got = outcome_of(apply);
  if (!got.failure.empty()) {
    return {0, "it fails: " + first_line(got.failure)};
  }
  if (is_refusal() && got.refusal.empty()) {
    return {0, "it answers what is to be refused: " + expected_.refusal};
  }
  if (is_refusal()) {
    return {0, is_other_message(expected_.refusal, got.refusal)
                   ? "it refuses with \"" + got.refusal + "\", expected \"" + expected_.refusal + "\""
                   : ""};
  }
  if (!got.refusal.empty()) {
    return {0, "it refuses: " + got.refusal};
  }
  return compare(case_.layer_case, expected_.answer, got.answer, magnification_);
}

}  // namespace bnlab
