// How many seeds would decide the comparisons that an experiment declares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "harness/experiment/spec.hpp"
#include "harness/store/record.hpp"

namespace bnlab {

// The fewest pairs of seeds, up to 1000, with which the two-sided paired t test at `level` tells differences
// with this mean and standard deviation from zero in four of five cases (power by the noncentral t
// distribution).
std::optional<int> seeds_to_tell(double mean, double deviation, double level);

// The same for two one-sided t tests that show the difference to lie within the margin; nothing where this
// mean does not.
std::optional<int> seeds_to_show_equal(double margin, double mean, double deviation, double level);

// The fewest pairs with which the exact sign-flip test can reach 5 % after Holm's adjustment over so many
// comparisons: 2^(1-n) comparisons <= 0.05.
int seeds_for_sign_flips(size_t comparisons);

// Where the seeds of the matrix cannot decide its comparisons: too few for any verdict, too few for the
// sign-flip test, and, as far as finished pairs tell how much they vary, how many a comparison would take.
std::vector<std::string> seed_warnings(const Experiment& experiment, const std::vector<Record>& records);

}  // namespace bnlab
