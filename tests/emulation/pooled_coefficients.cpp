// The steps after an exchange on the emulated GPU against the single steps, which coefficients.cpp holds to
// float64.
#include "tests/emulation/problems.hpp"
#include "tests/emulation/steps.hpp"

namespace bnlab::kernels::emulated {
namespace {

using at::Tensor;

constexpr int64_t kTowers = 6, kChannels = 150;  // two blocks, the second not full
constexpr double kEps = 1e-2;
const double kCounts[kTowers] = {3, 0, 5, 1, 0, 0};

class PooledCheck {
 public:
  explicit PooledCheck(at::ScalarType type) : type_(type) {
    PackedMoments moments({kCounts, kCounts + kTowers}, kChannels, random_);
    moments.values[moments.place(0, kChannels)] = std::nan("");  // the last channel of a group is not finite
    towers_ = moments.rows;
    towers_.set_values(moments.values);
    weight_ = numbers({kChannels});
    bias_ = numbers({kChannels});
    sums_ = numbers({kTowers, 2, kChannels});
    for (const auto order : {emulation::Order::descending, emulation::Order::shuffled}) {
      emulation::set_order(order);
      for (const PooledLayout layout : {PooledLayout::towers, PooledLayout::groups}) {
        for (const int64_t group : {1, 2, 3, 6}) {
          const auto sets = [&](int64_t first, int64_t count) {
            return PooledRows{.rows = {}, .layout = layout, .group = group, .first = first, .sets = count};
          };
          check(sets(0, kTowers), Merge::chan, /*renorm=*/true, /*mean_only=*/false);
          check(sets(3, 2), Merge::chan, false, false);
          check(sets(4, 1), Merge::averaged, false, true);
          check(sets(1, 4), Merge::e_x2, true, false);
        }
      }
      for (const int64_t group : {1, 2, 3, 6}) {
        all_reduced(group, Merge::chan);
        all_reduced(group, Merge::averaged);
      }
      sums_of_towers();
      sums_of_constants();
      running_statistics();
    }
    emulation::set_order(emulation::Order::ascending);
  }

  const std::string& mismatch() const { return comparison_.mismatch(); }

 private:
  Tensor numbers(const at::Sizes& sizes) { return filled(Tensor(sizes, type_), random_, 0.5, 1); }

  RunningUpdate update_of(int64_t groups) const { return running_update(groups, kChannels, type_); }

  void check(PooledRows pooled, Merge merge, bool renorm, bool mean_only) {
    const RunningUpdate expected_update = update_of(kTowers / pooled.group);
    const RunningUpdate update = update_of(kTowers / pooled.group);
    const auto by = [&](const RunningUpdate& running) {
      NormOptions options{.eps = kEps, .mean_only = mean_only, .weight = weight_, .bias = bias_};
      if (renorm) options.renorm = renormalisation(running);
      return options;
    };
    const Tensor groups = merge_moments(towers_, pooled.group, merge, type_);
    const Coefficients k = forward_coefficients(local_rows(groups, pooled), by(expected_update), type_);
    update_running(expected_update, groups);
    const bool merged = pooled.layout == PooledLayout::groups;
    pooled.rows = merged ? groups : towers_;
    comparison_.same(
        comparison_.launches(1, [&] { return pooled_forward(pooled, merge, by(update), type_, update); }), k);
    comparison_.same(update, expected_update);
    const Coefficients without = pooled_forward(pooled, merge, by(update_of(1)), type_, std::nullopt);
    comparison_.same("scale without an update", without.scale, k.scale);

    const Tensor local = numbers({pooled.sets, 2, kChannels}), summed = sums_of_groups(pooled.group);
    const BackwardCoefficients expected =
        backward_coefficients(k, local, local_rows(summed, pooled), mean_only, weight_);
    pooled.rows = merged ? summed : sums_;
    comparison_.same(
        comparison_.launches(1, [&] { return pooled_backward(k, local, pooled, mean_only, weight_); }),
        expected);
  }

  // Three ranks sum up their towers; another adds up what they send.
  void all_reduced(int64_t group, Merge merge) {
    const int64_t groups = kTowers / group, first[] = {0, 3, 5, kTowers};
    std::vector<double> totals(static_cast<size_t>(groups * (1 + 2 * kChannels)), 0.0);
    for (size_t rank = 0; rank < 3; ++rank) {
      const Tensor local({first[rank + 1] - first[rank], 1 + 2 * kChannels}, at::kDouble);
      for (int64_t t = first[rank]; t < first[rank + 1]; ++t) local[t - first[rank]].copy_(towers_[t]);
      const auto sums =
          comparison_.launches(1, [&] { return sum_moments(local, first[rank], group, groups, merge); })
              .values();
      for (size_t i = 0; i < totals.size(); ++i) totals[i] += sums[i];
    }
    const PooledRows pooled{
        .rows = Tensor({groups, 1 + 2 * kChannels}, at::kDouble),
        .layout = PooledLayout::group_sums,
        .group = group,
        .first = 3,
        .sets = 2,
    };
    pooled.rows.set_values(totals);
    const NormOptions options{.eps = kEps, .weight = weight_, .bias = bias_};
    const RunningUpdate update = update_of(groups), expected_update = update_of(groups);
    const Coefficients got =
        comparison_.launches(1, [&] { return pooled_forward(pooled, merge, options, type_, update); });
    const Tensor merged = merge_moments(towers_, group, merge, type_);
    const Coefficients k = forward_coefficients(local_rows(merged, pooled), options, type_);
    update_running(expected_update, merged);
    comparison_.same("count of sums", got.count, k.count);
    expect_close("mean of sums", got.mean, k.mean);
    expect_close("invstd of sums", got.invstd, k.invstd);
    expect_close("running statistics by sums", update.running, expected_update.running);
  }

  // Backward sums of towers 1 to 4, for each of the groups.
  void sums_of_towers() {
    for (const int64_t group : {1, 2, 3, 6}) {
      const Tensor local({4, 2, kChannels}, type_), out({kTowers / group, 2, kChannels}, type_);
      for (int64_t t = 0; t < 4; ++t) local[t].copy_(sums_[t + 1]);
      comparison_.launches(1, [&] { return sum_towers(local, 1, group, out), 0; });
      std::vector<double> expected(static_cast<size_t>(out.numel()), 0.0);
      const auto values = local.values();
      const auto width = static_cast<size_t>(2 * kChannels);
      for (size_t t = 0; t < 4; ++t)
        for (size_t i = 0; i < width; ++i)
          expected[(t + 1) / static_cast<size_t>(group) * width + i] += values[t * width + i];
      const Tensor all({kTowers / group, 2, kChannels}, at::kDouble);
      all.set_values(expected);
      expect_close("sums of towers", out, all);
    }
  }

  // Rounding may leave a variance a little below zero, which counts as none; NaN stays.
  void sums_of_constants() {
    const Tensor sums({1, 1 + 2 * kChannels}, at::kDouble);
    std::vector<double> values(static_cast<size_t>(1 + 2 * kChannels), 4e8);
    values[0] = 4;
    for (size_t c = 0; c < kChannels; ++c) values[1 + kChannels + c] = c == 7 ? std::nan("") : 4e16 - 1e3;
    sums.set_values(values);
    const PooledRows pooled{
        .rows = sums, .layout = PooledLayout::group_sums, .group = kTowers, .first = 0, .sets = 1};
    const Coefficients k = pooled_forward(pooled, Merge::chan, {.eps = kEps}, type_, std::nullopt);
    const auto invstds = k.invstd.values();
    for (size_t c = 0; c < kChannels; ++c) {
      comparison_.expect("invstd of a constant", 0, static_cast<int64_t>(c), invstds[c],
                         c == 7 ? std::nan("") : 1 / std::sqrt(kEps), 1e-5);
    }
  }

  void running_statistics() {
    const Tensor mean = numbers({kChannels}), var = numbers({kChannels});
    std::vector<double> variances = var.values();
    for (double& value : variances) value = std::abs(value);
    var.set_values(variances);
    const Coefficients k =
        comparison_.launches(1, [&] { return running_coefficients(mean, var, kEps, weight_, bias_); });
    const Coefficients centred = running_coefficients(mean, {}, kEps, {}, {});
    const auto gammas = weight_.values(), invstds = k.invstd.values(), scales = k.scale.values();
    const double bound = 8 * rounding(type_);
    for (int64_t c = 0; c < kChannels; ++c) {
      const auto i = static_cast<size_t>(c);
      const double invstd = 1 / std::sqrt(variances[i] + kEps), scale = invstd * gammas[i];
      comparison_.expect("invstd by running statistics", 0, c, invstds[i], invstd, bound * invstd);
      comparison_.expect("scale by running statistics", 0, c, scales[i], scale, bound * std::abs(scale));
    }
    comparison_.expect(k.mean.values() == mean.values() && k.shift.values() == bias_.values(),
                       "mean and shift by running statistics");
    comparison_.expect(centred.scale.values() == std::vector<double>(kChannels, 1.0),
                       "scale without a variance");
    comparison_.expect(centred.shift.values() == std::vector<double>(kChannels, 0.0), "shift without a bias");
  }

  // In the order of the towers, each sum rounded to the statistics' precision.
  Tensor sums_of_groups(int64_t group) const {
    const auto all = sums_.values();
    const Tensor out({kTowers / group, 2, kChannels}, type_);
    const auto width = static_cast<size_t>(2 * kChannels), towers = static_cast<size_t>(group);
    std::vector<double> sums(static_cast<size_t>(out.numel()));
    for (size_t i = 0; i < sums.size(); ++i) {
      const double* next = &all[i / width * towers * width + i % width];
      sums[i] = *next;
      for (size_t t = 1; t < towers; ++t) {
        sums[i] += next[t * width];
        if (type_ == at::kFloat) sums[i] = static_cast<double>(static_cast<float>(sums[i]));
      }
    }
    out.set_values(sums);
    return out;
  }

  void expect_close(const char* what, const Tensor& got, const Tensor& expected) {
    const auto a = got.values(), b = expected.values();
    for (size_t i = 0; i < a.size(); ++i) {
      comparison_.expect(what, 0, static_cast<int64_t>(i), a[i], b[i],
                         64 * rounding(type_) * (1 + std::abs(b[i])));
    }
  }
  at::ScalarType type_;
  std::mt19937 random_{7};
  Tensor towers_, weight_, bias_, sums_;
  StepsComparison comparison_;
};

}  // namespace

std::string mismatch_of_pooled_coefficients(at::ScalarType type) {
  return PooledCheck(type).mismatch();
}

}  // namespace bnlab::kernels::emulated
