// So many towers on the emulated GPU that several threads share a channel, against float64 loops and against
// the single steps.
#include "tests/emulation/problems.hpp"
#include "tests/emulation/steps.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr int64_t kTowers = 40, kChannels = 37;  // more than a tower a thread; the last block is not full

std::vector<double> counts() {  // some are empty
  std::vector<double> all;
  for (int64_t tower = 0; tower < kTowers; ++tower) all.push_back(static_cast<double>(tower * 7 % 5));
  return all;
}

class ManyTowersCheck {
 public:
  explicit ManyTowersCheck(at::ScalarType type) : type_(type), bound_(64 * rounding(type)) {
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
  void check(int64_t group, Merge merge) {
    const Tensor merged = merge_moments(moments_.rows, group, merge, type_);
    comparison_.merged(merged, moments_, group, merge, bound_);
    // Three sets of this rank, in two groups where there are two.
    const PooledRows pooled{
        .rows = moments_.rows, .layout = PooledLayout::towers, .group = group, .first = 18, .sets = 3};
    const RunningUpdate update = update_of(kTowers / group), expected_update = update_of(kTowers / group);
    const NormOptions options = by(update), expected_options = by(expected_update);
    const Coefficients expected = forward_coefficients(local_rows(merged, pooled), expected_options, type_);
    update_running(expected_update, merged);
    const Coefficients k =
        comparison_.launches(1, [&] { return pooled_forward(pooled, merge, options, type_, update); });
    comparison_.same(k, expected);
    comparison_.same(update, expected_update);
    backward(pooled, k);
  }

  RunningUpdate update_of(int64_t groups) const { return running_update(groups, kChannels, type_); }
  NormOptions by(const RunningUpdate& update) const {
    return {.eps = 1e-2, .weight = weight_, .renorm = renormalisation(update)};
  }

  void backward(PooledRows pooled, const Coefficients& k) {
    const Tensor local = filled(Tensor({pooled.sets, 2, kChannels}, type_), random_, 0.5, 1);
    pooled.rows = sums_;
    const BackwardCoefficients got = comparison_.launches(
        1, [&] { return pooled_backward(k, local, pooled, /*mean_only=*/false, weight_); });
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

  at::ScalarType type_;
  double bound_;
  std::mt19937 random_{7};
  PackedMoments moments_{counts(), kChannels, random_};
  Tensor sums_, weight_;
  StepsComparison comparison_;
};

}  // namespace

std::string mismatch_of_many_towers(at::ScalarType type) {
  return ManyTowersCheck(type).mismatch();
}

}  // namespace bnlab::kernels::emulated
