// The coefficients of norms within samples on the emulated GPU against their formulas in float64.
#include <algorithm>

#include "tests/emulation/problems.hpp"
#include "tests/emulation/steps.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr int64_t kSamples = 4, kChannels = 300;
constexpr double kEps = 1e-2;
const double kPositions[kSamples] = {3, 0, 40, 1};

class SampleCheck {
 public:
  explicit SampleCheck(at::ScalarType type) : type_(type), bound_(256 * rounding(type)) {
    weight_ = numbers({kChannels});
    bias_ = numbers({kChannels});
    for (const auto order : {emulation::Order::descending, emulation::Order::shuffled}) {
      emulation::set_order(order);
      for (const int64_t groups : {1, 4, 60, 300}) {  // teams of 128, 128, 8 and 1
        check(groups, /*affine=*/true);
        check(groups, false);
      }
    }
    emulation::set_order(emulation::Order::ascending);
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  Tensor numbers(const at::Sizes& sizes) { return filled(Tensor(sizes, type_), random_, 0.5, 1); }
  void expect(const char* what, int64_t n, int64_t c, double got, double expected, double size) {
    comparison_.expect(what, n, c, got, expected, bound_ * size);
  }
  void check(int64_t groups, bool affine) {
    const Tensor weight = affine ? weight_ : Tensor(), bias = affine ? bias_ : Tensor();
    const Tensor sums = numbers({kSamples, 2, kChannels});
    const Coefficients k = comparison_.launches(
        1, [&] { return sample_forward(moments_.rows, groups, kEps, weight, bias, type_); });
    const BackwardCoefficients back =
        comparison_.launches(1, [&] { return sample_backward(k, sums, groups, weight); });

    gammas_ = affine ? weight_.values() : std::vector<double>(kChannels, 1.0);
    const auto betas = affine ? bias_.values() : std::vector<double>(kChannels, 0.0);
    const auto all = sums.values(), means = k.mean.values(), invstds = k.invstd.values();
    const auto scales = k.scale.values(), shifts = k.shift.values(), counts = k.count.values();
    const auto a = back.a.values(), b = back.b.values(), cs = back.c.values();
    std::vector<double> dweight(kChannels), dbias(kChannels), size(kChannels, 1.0);
    for (int64_t n = 0; n < kSamples; ++n) {
      for (int64_t c = 0; c < kChannels; ++c) {
        const Group group = group_of(n, c / (kChannels / groups), groups, all);
        const auto i = static_cast<size_t>(n * kChannels + c), channel = static_cast<size_t>(c);
        const double s = group.invstd, scale = gammas_[channel] * s;
        expect("count", n, c, counts[i], group.count, 0);
        expect("mean", n, c, means[i], group.mean, 1 + std::abs(group.mean));
        expect("invstd", n, c, invstds[i], s, s);
        expect("scale", n, c, scales[i], scale, std::abs(scale));
        expect("shift", n, c, shifts[i], betas[channel], std::abs(betas[channel]));
        expect("a", n, c, a[i], scale, std::abs(scale));
        expect("c", n, c, cs[i], -s * group.a / group.count, s * group.size / group.count);
        expect("b", n, c, b[i], -s * s * s * group.b / group.count, s * s * s * group.size / group.count);
        const double A = all[i + static_cast<size_t>(n * kChannels)];
        const double B = all[i + static_cast<size_t>((n + 1) * kChannels)];
        dbias[channel] += A;
        dweight[channel] += s * B;
        size[channel] += std::abs(A) + std::abs(s * B);
      }
    }
    const auto got_weight = back.dweight.values(), got_bias = back.dbias.values();
    for (size_t c = 0; c < dweight.size(); ++c) {
      expect("dweight", 0, static_cast<int64_t>(c), got_weight[c], dweight[c], size[c]);
      expect("dbias", 0, static_cast<int64_t>(c), got_bias[c], dbias[c], size[c]);
    }
  }

  struct Group {
    double count, mean, invstd;
    double a, b;  // sums over its channels of gamma A and gamma B
    double size;  // of what these add up
  };
  Group group_of(int64_t n, int64_t group, int64_t groups, const std::vector<double>& sums) const {
    const int64_t width = kChannels / groups, first = group * width;
    Group of{std::max(1.0, kPositions[n] * static_cast<double>(width)), 0, 0, 0, 0, 1};
    double within = 0;
    for (int64_t c = first; c < first + width; ++c)
      of.mean += moments_.mean(n, c) / static_cast<double>(width);
    for (int64_t c = first; c < first + width; ++c) {
      const double d = moments_.mean(n, c) - of.mean, gamma = gammas_[static_cast<size_t>(c)];
      within += moments_.m2(n, c) + kPositions[n] * d * d;
      const double A = gamma * sums[static_cast<size_t>(2 * n * kChannels + c)];
      const double B = gamma * sums[static_cast<size_t>((2 * n + 1) * kChannels + c)];
      of.a += A;
      of.b += B;
      of.size += std::abs(A) + std::abs(B);
    }
    of.invstd = 1 / std::sqrt(within / of.count + kEps);
    return of;
  }

  at::ScalarType type_;
  double bound_;
  std::mt19937 random_{7};
  PackedMoments moments_{{kPositions, kPositions + kSamples}, kChannels, random_};
  Tensor weight_, bias_;
  std::vector<double> gammas_;
  StepsComparison comparison_;
};

}  // namespace

std::string mismatch_of_sample_coefficients(at::ScalarType type) {
  return SampleCheck(type).mismatch();
}

}  // namespace bnlab::kernels::emulated
