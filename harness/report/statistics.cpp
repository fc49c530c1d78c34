#include "harness/report/statistics.hpp"

#include <algorithm>
#include <array>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>

namespace bnlab {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double standard_error(const std::vector<double>& values) {
  return sample_standard_deviation(values) / std::sqrt(static_cast<double>(values.size()));
}

// P(T <= distance / error) for Student's T with `n - 1` degrees of freedom; a step where the error is zero.
double student_cdf(double distance, double error, size_t n) {
  if (error == 0) return distance > 0 ? 1 : distance < 0 ? 0 : 0.5;
  const boost::math::students_t student(static_cast<double>(n - 1));
  return boost::math::cdf(student, distance / error);
}

// Sign patterns of `values` from `next` on, added to `sum`, that reach `target` in absolute value.
size_t count_reaching(const std::vector<double>& values, size_t next, double sum, double target) {
  if (next == values.size()) return std::abs(sum) >= target ? 1 : 0;
  return count_reaching(values, next + 1, sum + values[next], target) +
         count_reaching(values, next + 1, sum - values[next], target);
}

}  // namespace

double mean(const std::vector<double>& values) {
  if (values.empty()) return kNaN;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_standard_deviation(const std::vector<double>& values) {
  if (values.size() < 2) return kNaN;
  const double centre = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - centre) * (value - centre);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

Interval t_interval(const std::vector<double>& values, double confidence) {
  Interval interval{values.size(), mean(values), kNaN};
  if (values.size() < 2) return interval;
  const boost::math::students_t student(static_cast<double>(values.size() - 1));
  interval.half_width = boost::math::quantile(student, (1 + confidence) / 2) * standard_error(values);
  return interval;
}

double t_test_p(const std::vector<double>& differences) {
  if (differences.size() < 2) return 1;
  const double distance = -std::abs(mean(differences));
  return 2 * student_cdf(distance, standard_error(differences), differences.size());
}

std::optional<double> sign_flip_p(const std::vector<double>& differences) {
  constexpr size_t kMost = 20;
  if (differences.empty()) return 1;
  if (differences.size() > kMost) return std::nullopt;
  double sum = 0, size = 0;
  for (const double difference : differences) {
    sum += difference;
    size += std::abs(difference);
  }
  const double target = std::abs(sum) - 1e-12 * size;  // ties must count in spite of rounding
  // A pattern and its opposite reach the target together: the first sign stays fixed.
  const double reaching = static_cast<double>(count_reaching(differences, 1, differences[0], target));
  return reaching / std::pow(2.0, static_cast<double>(differences.size() - 1));
}

std::vector<double> holm(const std::vector<double>& p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return p_values[a] < p_values[b]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const double scaled = static_cast<double>(order.size() - i) * p_values[order[i]];
    largest = std::max(largest, std::min(1.0, scaled));
    adjusted[order[i]] = largest;
  }
  return adjusted;
}

double equivalence_p(const std::vector<double>& differences, double margin) {
  if (differences.size() < 2) return 1;
  const double centre = mean(differences), error = standard_error(differences);
  const double not_above = student_cdf(centre - margin, error, differences.size());   // H0: mean >= margin
  const double not_below = student_cdf(-centre - margin, error, differences.size());  // H0: mean <= -margin
  return std::max(not_above, not_below);
}

const char* name(Verdict verdict) {
  constexpr std::array<const char*, 7> names = {
      "better", "worse", "equal", "direction: above", "direction: below", "undecided", "not claimed"};
  return names[static_cast<size_t>(verdict)];
}

Verdict verdict(const std::vector<double>& differences, double adjusted_p, std::optional<double> equal_p,
                double level) {
  const bool above = mean(differences) > 0;
  if (differences.size() < kFewestSeeds) {
    if (adjusted_p >= level) return Verdict::undecided;
    return above ? Verdict::direction_above : Verdict::direction_below;
  }
  if (equal_p && *equal_p < level) return Verdict::equal;
  if (adjusted_p < level) return above ? Verdict::better : Verdict::worse;
  return Verdict::undecided;
}

}  // namespace bnlab
