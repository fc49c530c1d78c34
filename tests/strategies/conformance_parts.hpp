// What the files of the conformance checks share.
#pragma once

#include <string>
#include <vector>

#include "harness/error.hpp"
#include "tests/strategies/case_for.hpp"
#include "tests/strategies/conformance.hpp"

namespace bnlab {

constexpr double kFloat64 = 1e-12;  // a step: some hundred roundings of 1e-16
constexpr double kFloat32 = 1e-5;

const std::vector<Mode> kTrain{Mode::train};
const std::vector<Mode> kTrainAndEvaluate{Mode::train, Mode::train, Mode::evaluate_saved};

void append(Complaints& all, const std::string& where, const Complaints& more);
std::string listed(const std::vector<int64_t>& values);

// `bound`, wider where the strategy's own arithmetic magnifies rounding.
double bound_for(const LayerCase& layer_case, double bound);

// An answer, or why there is none.
struct Outcome {
  LayerAnswer answer;
  std::string refusal;
};

template <class F>
Outcome attempt(F&& answer) {
  try {
    return {answer(), ""};
  } catch (const Error& e) {
    return {{}, e.what()};
  }
}

// Both answer alike, or both refuse.
Complaints against_reference(const LayerCase& layer_case, const Applier& apply, double bound);

// Checks of values, in conformance.cpp; of what has no values or must stay as it is, in
// conformance_edges.cpp.
std::vector<Check> value_checks();
std::vector<Check> edge_checks();

}  // namespace bnlab
