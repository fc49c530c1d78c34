#include "harness/report/power.hpp"

#include <algorithm>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <set>

#include "harness/report/contrast_results.hpp"
#include "harness/support/text_table.hpp"

namespace bnlab {
namespace {

constexpr double kLevel = 0.05, kPower = 0.8;
constexpr int kMostSeeds = 1000;
constexpr size_t kFewestForVariance = 3;  // pairs of a pilot

double critical(int n, double tail) {
  return boost::math::quantile(boost::math::complement(boost::math::students_t(n - 1.0), tail));
}

template <class Power>
std::optional<int> fewest(Power power) {
  for (int n = 2; n <= kMostSeeds; ++n)
    if (power(n) >= kPower) return n;
  return std::nullopt;
}

std::string count_text(const std::optional<int>& seeds) {
  return seeds ? "about " + std::to_string(*seeds) : "more than " + std::to_string(kMostSeeds);
}

// Empty where the seeds that are asked for suffice, or too few pairs have finished.
std::string warning_of(const ContrastResult& result, size_t comparisons, size_t with_margin, int asked) {
  const std::vector<double> pairs = without_seeds(result.differences);
  const double deviation = sample_standard_deviation(pairs);
  if (pairs.size() < kFewestForVariance || !(deviation > 0)) return "";
  const auto tell = seeds_to_tell(result.interval.mean, deviation, kLevel / static_cast<double>(comparisons));
  const auto& margin = result.contrast.equivalence_margin;
  const auto equal = margin ? seeds_to_show_equal(*margin, result.interval.mean, deviation,
                                                  kLevel / static_cast<double>(with_margin))
                            : std::nullopt;
  const bool may_be_equal = margin && std::abs(result.interval.mean) < *margin;
  const auto suffices = [&](const std::optional<int>& seeds) { return seeds && *seeds <= asked; };
  if (suffices(tell) || suffices(equal)) return "";
  return comparison_name(result) + ": " + std::to_string(pairs.size()) + " pairs finished, difference " +
         fixed(result.interval.mean, 3) + ", standard deviation " + fixed(deviation, 3) +
         "; 80 % power takes " + count_text(tell) + " seeds" +
         (may_be_equal ? ", or " + count_text(equal) + " for equality within " + significant(*margin, 3)
                       : "") +
         ", the matrix has " + std::to_string(asked);
}

}  // namespace

std::optional<int> seeds_to_tell(double mean, double deviation, double level) {
  // Four pairs tell anything beyond this; the distribution cannot be computed for far larger ones.
  const double effect = std::min(std::abs(mean) / deviation, 1000.0);
  return fewest([&](int n) {
    const double t = critical(n, level / 2), shift = effect * std::sqrt(n);
    const boost::math::non_central_t seen(n - 1.0, shift);
    return boost::math::cdf(boost::math::complement(seen, t)) + boost::math::cdf(seen, -t);
  });
}

std::optional<int> seeds_to_show_equal(double margin, double mean, double deviation, double level) {
  if (std::abs(mean) >= margin) return std::nullopt;
  return fewest([&](int n) {
    const boost::math::students_t t(n - 1.0);
    const auto passes = [&](double room) {
      return boost::math::cdf(t, room / deviation * std::sqrt(n) - critical(n, level));
    };
    return passes(margin - mean) + passes(margin + mean) - 1;
  });
}

int seeds_for_sign_flips(size_t comparisons) {
  return static_cast<int>(std::ceil(1 + std::log2(static_cast<double>(comparisons) / kLevel)));
}

std::vector<std::string> seed_warnings(const Experiment& experiment, const std::vector<Record>& records) {
  if (experiment.contrasts.empty()) return {};
  auto results = evaluate_contrasts(experiment.contrasts, collect_cells(experiment, records));
  std::erase_if(results, [](const ContrastResult& result) { return result.verdict == Verdict::not_claimed; });
  if (results.empty()) return {};
  std::set<uint64_t> seeds;
  for (const RunSpec& run : experiment.runs) seeds.insert(run.seed);
  const int asked = static_cast<int>(seeds.size());
  const std::string those = std::to_string(asked) + (asked == 1 ? " seed" : " seeds");
  const std::string over =
      std::to_string(results.size()) + (results.size() == 1 ? " comparison" : " comparisons");
  const int for_flips = seeds_for_sign_flips(results.size());
  std::vector<std::string> warnings;
  if (seeds.size() < kFewestSeeds) {
    warnings.push_back(those + " can show a direction and give no verdict: that takes " +
                       std::to_string(kFewestSeeds) + ", and " + std::to_string(for_flips) +
                       " for the sign-flip test over " + over);
  } else if (asked < for_flips) {
    warnings.push_back("with " + those + " the t test decides alone: over " + over +
                       " the sign-flip test takes " + std::to_string(for_flips));
  }
  size_t with_margin = 0;
  for (const ContrastResult& result : results) with_margin += result.contrast.equivalence_margin.has_value();
  for (const ContrastResult& result : results) {
    const std::string warning = warning_of(result, results.size(), with_margin, asked);
    if (!warning.empty()) warnings.push_back(warning);
  }
  return warnings;
}

}  // namespace bnlab
