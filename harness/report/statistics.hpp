// The statistics of a report: intervals over seeds, tests of paired differences, and verdicts. The protocol:
// seeds are the unit of replication, contrasts are declared before anything runs, their p values are adjusted
// after Holm, and "equal" is said only within a margin that was declared too (two one-sided tests).
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace bnlab {

double mean(const std::vector<double>& values);                       // NaN if empty
double sample_standard_deviation(const std::vector<double>& values);  // divides by n - 1; NaN below 2 values

// mean +- half_width: Student's t interval, 95 % unless told otherwise. half_width is NaN below 2 values.
struct Interval {
  size_t n = 0;
  double mean = 0;
  double half_width = 0;
};
Interval t_interval(const std::vector<double>& values, double confidence = 0.95);

// Two-sided p of Student's t test that the mean is zero. 1 below 2 values, or if all are zero.
double t_test_p(const std::vector<double>& differences);

// Two-sided p of the exact sign-flip test that the differences are symmetric about zero: the share of the
// 2^n sign patterns whose |sum| reaches the one seen. Never below 2^(1-n). Nothing beyond 20 differences,
// where the patterns are too many to enumerate.
std::optional<double> sign_flip_p(const std::vector<double>& differences);

// Holm's step-down adjustment; in the order given, each at most 1.
std::vector<double> holm(const std::vector<double>& p_values);

// p of two one-sided t tests that |mean| < margin: the larger of the two. 1 below 2 values.
double equivalence_p(const std::vector<double>& differences, double margin);

// Below this many paired seeds the sign-flip test cannot reach 5 %, and no verdict is given.
inline constexpr size_t kFewestSeeds = 6;

enum class Verdict { better, worse, equal, direction_above, direction_below, undecided, not_claimed };
const char* name(Verdict verdict);  // "better", "direction: above", "not claimed"

// The rule for verdicts, which tables, figures and prose follow. With kFewestSeeds differences or more:
// `equal` if the p of equality is below `level`, be the difference significant or not; else `better` or
// `worse` if the p of a difference is; else `undecided`. Both are adjusted after Holm; without a declared
// margin there is no p of equality. With fewer, what would be better or
// worse is a direction, and everything else undecided.
Verdict verdict(const std::vector<double>& differences, double adjusted_p, std::optional<double> equal_p,
                double level = 0.05);

}  // namespace bnlab
