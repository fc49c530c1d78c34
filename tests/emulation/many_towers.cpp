// So many towers on the emulated GPU that several threads share a channel, against float64 loops and against
// the single steps.
#include <algorithm>

#include "tests/emulation/device.hpp"
#include "tests/emulation/problems.hpp"
#include "tests/emulation/values.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr int64_t kTowers = 40, kChannels = 37;  // more than a tower a thread; the last block is not full
constexpr int64_t kRow = 1 + 2 * kChannels;

double count_of(int64_t tower) {  // some are empty
  return static_cast<double>(tower * 7 % 5);
}

class ManyTowersCheck {
 public:
  explicit ManyTowersCheck(at::ScalarType type) : type_(type), bound_(64 * rounding(type)) {
    rows_ = filled(Tensor({kTowers, kRow}, at::kDouble), random_, 1, 2);
    moments_ = rows_.values();
    for (int64_t t = 0; t < kTowers; ++t) {
      moments_[at(t, 0)] = count_of(t);
      for (int64_t i = 1; i < kRow; ++i) {
        double& value = moments_[at(t, i)];
        value = count_of(t) == 0 ? 0 : i > kChannels ? std::abs(value) * count_of(t) : value;
      }
    }
    rows_.set_values(moments_);
    sums_ = filled(Tensor({kTowers, 2, kChannels}, type_), random_, 0.5, 1);
    weight_ = filled(Tensor({kChannels}, type_), random_, 0.5, 1);
    for (const auto order : {emulation::Order::descending, emulation::Order::shuffled}) {
      emulation::set_order(order);
      for (const int64_t group : {20, 40})
        for (const Merge merge : {Merge::chan, Merge::averaged, Merge::e_x2}) check(group, merge);
    }
    emulation::set_order(emulation::Order::ascending);
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  static size_t at(int64_t tower, int64_t i) { return static_cast<size_t>(tower * kRow + i); }

  void check(int64_t group, Merge merge) {
    const Tensor merged = merge_moments(rows_, group, merge, type_);
    const std::vector<double> got = merged.values();
    for (int64_t k = 0; k < kTowers / group; ++k)
      for (int64_t c = 0; c < kChannels; ++c) merged_equals_loops(k, c, group, merge, got);
    // Three sets of this rank, in two groups where there are two.
    const PooledRows pooled{
        .rows = rows_, .layout = PooledLayout::towers, .group = group, .first = 18, .sets = 3};
    RunningUpdate update = update_of(kTowers / group), expected_update = update_of(kTowers / group);
    const NormOptions options = by(update), expected_options = by(expected_update);
    at::Sizes sizes = merged.sizes();
    sizes[0] = pooled.sets;
    const Tensor local(sizes, at::kDouble);
    for (int64_t s = 0; s < pooled.sets; ++s) local[s].copy_(merged[(pooled.first + s) / group]);
    const Coefficients expected = forward_coefficients(local, expected_options, type_);
    update_running(expected_update, merged);
    const int64_t launches = emulation::counts().launches;
    const Coefficients k = pooled_forward(pooled, merge, options, type_, update);
    same("mean", k.mean, expected.mean);
    same("scale", k.scale, expected.scale);
    same("shift", k.shift, expected.shift);
    same("d", k.d, expected.d);
    same("running statistics", update.running, expected_update.running);
    backward(pooled, k);
    comparison_.expect(emulation::counts().launches - launches == 2, "the number of launches");
  }

  void merged_equals_loops(int64_t k, int64_t c, int64_t group, Merge merge, const std::vector<double>& got) {
    double n = 0, sum = 0, within = 0, between = 0, squares = 0;
    for (int64_t t = k * group; t < (k + 1) * group; ++t) {
      const double m = moments_[at(t, 1 + c)], m2 = moments_[at(t, 1 + kChannels + c)];
      n += count_of(t);
      sum += count_of(t) * m;
      within += m2;
      squares += m2 + count_of(t) * m * m;
    }
    const double m = sum / n;
    for (int64_t t = k * group; t < (k + 1) * group; ++t)
      between += count_of(t) * (moments_[at(t, 1 + c)] - m) * (moments_[at(t, 1 + c)] - m);
    comparison_.expect("merged count", k, c, got[at(k, 0)], n, 0);
    comparison_.expect("merged mean", k, c, got[at(k, 1 + c)], m, bound_ * (1 + std::abs(m)));
    comparison_.expect("merged M2", k, c, got[at(k, 1 + kChannels + c)],
                       merge == Merge::averaged ? within : within + between, bound_ * (1 + squares));
  }

  RunningUpdate update_of(int64_t groups) const {
    std::mt19937 random(11);
    const RunningUpdate update{
        .running = filled(Tensor({2, kChannels}, type_), random, 3, 0.1),
        .weights = filled(Tensor({2, groups}, at::kDouble), random, 0.5, 0.1),
        .decay = 0.75,
        .nonfinite_count = Tensor({1}, at::kLong),
    };
    update.nonfinite_count.zero_();
    return update;
  }
  NormOptions by(const RunningUpdate& update) const {
    NormOptions options{.eps = 1e-2, .weight = weight_};
    options.renorm = Renormalisation{.running = update.running, .r_max = 1.5, .d_max = 0.7};
    return options;
  }

  void backward(PooledRows pooled, const Coefficients& k) {
    const Tensor local = filled(Tensor({pooled.sets, 2, kChannels}, type_), random_, 0.5, 1);
    pooled.rows = sums_;
    const BackwardCoefficients got = pooled_backward(k, local, pooled, /*mean_only=*/false, weight_);
    const auto c_of = got.c.values(), a_of = got.a.values(), n_of = k.count.values(), sums = sums_.values();
    for (int64_t s = 0; s < pooled.sets; ++s) {
      for (int64_t c = 0; c < kChannels; ++c) {
        const int64_t first = (pooled.first + s) / pooled.group * pooled.group;
        double sum = 0, size = 0;
        for (int64_t t = first; t < first + pooled.group; ++t) {
          const double a = sums[static_cast<size_t>(2 * t * kChannels + c)];
          sum += a;
          size += std::abs(a);
        }
        const auto i = static_cast<size_t>(s * kChannels + c);
        const double factor = -a_of[i] / n_of[i];
        comparison_.expect("c of pooled sums", s, c, c_of[i], factor * sum, bound_ * std::abs(factor) * size);
      }
    }
  }

  void same(const char* what, const Tensor& got, const Tensor& expected) {
    comparison_.expect(same_bits(got, expected), what);
  }

  at::ScalarType type_;
  double bound_;
  std::mt19937 random_{7};
  Tensor rows_, sums_, weight_;
  std::vector<double> moments_;
  Comparison comparison_;
};

}  // namespace

std::string mismatch_of_many_towers(at::ScalarType type) {
  return ManyTowersCheck(type).mismatch();
}

}  // namespace bnlab::kernels::emulated
