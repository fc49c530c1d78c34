// What each strategy costs against a baseline, by the runs whose throughput counts.
#pragma once

#include <string>

#include "harness/report/report.hpp"

namespace bnlab {

// The strategy that costs are given relative to where nobody has named one: the first of the matrix whose runs exchange no
// statistics, if it and another strategy have runs whose throughput counts; else "".
std::string default_baseline(const ExperimentReport& report);

// Fills the `relative_images_per_s`, `extra_step_ms` and `extra_us_per_collective` of all rows, each against the row of
// `report.baseline` in the same group and on the same placement. Throws Error (usage) where no run has that strategy.
void compare_with_baseline(ExperimentReport& report);

}  // namespace bnlab
