// The steps of kernels.hpp on the emulated GPU against their formulas in float64.
#include <algorithm>

#include "tests/emulation/problems.hpp"
#include "tests/emulation/steps.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr int64_t kSets = 6, kChannels = 300;  // several blocks, the last not full
constexpr double kEps = 1e-2;
const double kCounts[kSets] = {3, 0, 5, 1, 0, 40};

class CoefficientsCheck {
 public:
  explicit CoefficientsCheck(at::ScalarType type) : type_(type), bound_(64 * rounding(type)) {
    weight_ = numbers({kChannels});
    bias_ = numbers({kChannels});
    merging();
    forward_and_backward(/*affine=*/false, /*mean_only=*/false, /*renorm=*/false, /*full=*/true);
    forward_and_backward(true, false, false, true);
    forward_and_backward(true, false, true, true);
    forward_and_backward(true, false, true, false);
    forward_and_backward(false, true, false, true);
    forward_and_backward(true, false, false, true, /*ddof=*/1);
    update_of_running();
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  Tensor numbers(const at::Sizes& sizes) { return filled(Tensor(sizes, type_), random_, 0.5, 1); }
  void expect(const char* what, int64_t s, int64_t c, double got, double expected, double size) {
    comparison_.expect(what, s, c, got, expected, bound_ * size);
  }
  double mean(int64_t s, int64_t c) const { return moments_.mean(s, c); }
  double m2(int64_t s, int64_t c) const { return moments_.m2(s, c); }

  void merging() {
    for (const int64_t group : {1, 2, 3, 6})
      for (const Merge merge : {Merge::chan, Merge::averaged, Merge::e_x2})
        comparison_.merged(merge_moments(moments_.rows, group, merge, type_), moments_, group, merge, bound_);
  }

  void forward_and_backward(bool affine, bool mean_only, bool renorm, bool full, double ddof = 0) {
    const Tensor running = filled(Tensor({2, kChannels}, type_), random_, 0, 1);
    std::vector<double> before = running.values();
    for (double& value : before) value = std::abs(value);
    running.set_values(before);
    before = running.values();
    NormOptions options{.eps = kEps, .ddof = ddof, .mean_only = mean_only};
    if (affine) options.weight = weight_;
    if (affine) options.bias = bias_;
    if (renorm) options.renorm = Renormalisation{.running = running, .r_max = 1.5, .d_max = 0.7};
    const Coefficients k = forward_coefficients(moments_.rows, options, type_);
    const Tensor local = numbers({kSets, 2, kChannels}), others = numbers({kSets, 2, kChannels});
    const Tensor group = !full ? Tensor() : renorm ? local : others;
    const BackwardCoefficients back = backward_coefficients(k, local, group, mean_only, options.weight);

    const auto means = k.mean.values(), invstds = k.invstd.values(), scales = k.scale.values();
    const auto shifts = k.shift.values(), sums = local.values(), a = back.a.values(), b = back.b.values();
    const auto cs = back.c.values(), dweight = back.dweight.values(), dbias = back.dbias.values();
    const auto all = full ? group.values() : std::vector<double>(sums.size(), 0.0);
    const auto gammas = weight_.values(), betas = bias_.values();
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto channel = static_cast<size_t>(c);
      const double gamma = affine ? gammas[channel] : 1, beta = affine ? betas[channel] : 0;
      double sum_a = 0, sum_b = 0, size_a = 1, size_b = 1;
      for (int64_t s = 0; s < kSets; ++s) {
        const auto i = static_cast<size_t>(s * kChannels + c),
                   at_a = static_cast<size_t>(2 * s * kChannels + c);
        const double n = std::max(kCounts[s], 1.0);
        const double deviation = std::sqrt(m2(s, c) / std::max(n - ddof, 1.0) + kEps);
        const double spread = std::sqrt(before[static_cast<size_t>(kChannels + c)] + kEps);
        const double invstd = mean_only ? 1 : 1 / deviation;
        const double r = renorm ? std::clamp(deviation / spread, 1 / 1.5, 1.5) : 1;
        const double d = renorm ? std::clamp((mean(s, c) - before[channel]) / spread, -0.7, 0.7) : 0;
        const double scale = gamma * r * invstd;
        expect("mean", s, c, means[i], mean(s, c), std::abs(mean(s, c)));
        expect("invstd", s, c, invstds[i], invstd, invstd);
        expect("scale", s, c, scales[i], scale, std::abs(scale));
        expect("shift", s, c, shifts[i], beta + gamma * d, std::abs(beta) + std::abs(gamma));
        const double A = sums[at_a], B = sums[at_a + kChannels];
        const double slope = mean_only ? 0 : invstd * invstd;
        expect("a", s, c, a[i], scale, std::abs(scale));
        expect("c", s, c, cs[i], -scale * all[at_a] / n, std::abs(scale) * 5);
        expect("b", s, c, b[i], -scale * all[at_a + kChannels] / n * slope, std::abs(scale) * slope * 5);
        sum_a += A;
        sum_b += r * invstd * B + d * A;
        size_a += std::abs(A);
        size_b += std::abs(r * invstd * B) + std::abs(d * A);
      }
      expect("dbias", 0, c, dbias[channel], sum_a, size_a);
      expect("dweight", 0, c, dweight[channel], sum_b, size_b);
    }
  }

  // Set 2 takes no part and is not read; of set 5, a channel is not finite.
  void update_of_running() {
    const double weights[kSets] = {0.25, 0, 0.5, 0.125, 0, 0.0625}, takes_part[kSets] = {1, 0, 0, 1, 0, 1};
    const int64_t lost = 257;
    std::vector<double> values = moments_.values, both(weights, weights + kSets);
    both.insert(both.end(), takes_part, takes_part + kSets);
    std::fill_n(&values[moments_.place(2, 0)], 1 + 2 * kChannels, std::nan(""));
    values[moments_.place(5, 1 + kChannels + lost)] = INFINITY;
    const Tensor rows(moments_.rows.sizes(), at::kDouble);
    rows.set_values(values);
    const RunningUpdate update{
        .running = numbers({2, kChannels}),
        .weights = Tensor({2, kSets}, at::kDouble),
        .decay = 0.75,
        .nonfinite_count = Tensor({1}, at::kLong),
    };
    update.weights.set_values(both);
    update.nonfinite_count.set_values({10});
    const std::vector<double> before = update.running.values();
    update_running(update, rows);
    const std::vector<double> after = update.running.values();
    comparison_.expect(update.nonfinite_count.values()[0] == 11,
                       "the number of channels that are not finite");
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto i = static_cast<size_t>(c), j = static_cast<size_t>(kChannels + c);
      double m = 0.75 * before[i], v = 0.75 * before[j], size_m = 1, size_v = 1;
      for (int64_t s = 0; s < kSets; ++s) {
        if (takes_part[s] == 0) continue;
        m += weights[s] * mean(s, c);
        v += weights[s] * m2(s, c) / std::max(kCounts[s] - 1, 1.0);
        size_m += std::abs(weights[s] * mean(s, c));
        size_v += weights[s] * m2(s, c);
      }
      expect("running mean", 0, c, after[i], c == lost ? before[i] : m, c == lost ? 0 : size_m);
      expect("running variance", 0, c, after[j], c == lost ? before[j] : v, c == lost ? 0 : size_v);
    }
  }

  at::ScalarType type_;
  double bound_;
  std::mt19937 random_{7};
  PackedMoments moments_{{kCounts, kCounts + kSets}, kChannels, random_};
  Tensor weight_, bias_;
  StepsComparison comparison_;
};

}  // namespace

std::string mismatch_of_coefficients(at::ScalarType type) {
  return CoefficientsCheck(type).mismatch();
}

}  // namespace bnlab::kernels::emulated
