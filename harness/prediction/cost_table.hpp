// What `bnlab cost` answers: a sentence, a table with words for its columns, and the same as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/prediction/step.hpp"
#include "harness/support/json.hpp"

namespace bnlab {

// The step of a run on so many ranks.
struct CostRow {
  StepProfile profile;
  int ranks = 1;
  StepPrediction prediction;
  Estimate relative;               // images/s over those of the baseline
  std::optional<double> measured;  // seconds of the step, where the probe has it
  std::string baseline = {};       // the strategy that `relative` and `more` are against
  Estimate more = {};              // seconds that its step takes longer than that of the baseline

  bool is_compared() const { return relative.mid > 0 && profile.exchanges_statistics(); }
};

// Images/s of each row over those of the first strategy of the same model, exchange and ranks that exchanges
// nothing but gradients.
void compare_with_baseline(std::vector<CostRow>& rows);

std::string text_of(const std::vector<CostRow>& rows, const std::vector<std::string>& notes);
Json json_of(const std::vector<CostRow>& rows, const Fabric& fabric, const std::vector<std::string>& notes);

std::string interval(const Estimate& estimate, double unit, int digits);  // "2.57 (0.694 - 8.89)"
Json json_of(const Estimate& estimate);                                   // {"low", "mid", "high"}

}  // namespace bnlab
