// The steps between the sweeps against plain float64 formulas and LibTorch's own batch_norm: empty sets,
// channels that are not finite, groups, every way to merge, rows that are shared by all sets; on CUDA too
// where there is a device.
#include "strategies/kernels/kernels.hpp"

#include <torch/types.h>

#include <limits>
#include <vector>

#include "tests/strategies/kernels/on_each_device.hpp"

namespace bnlab::kernels::finish_test {
namespace {

using at::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kEps = 1e-2;
constexpr int64_t kChannels = 7;

struct Precision {
  at::ScalarType type;
  double bound;
};
const std::vector<Precision> kPrecisions{{at::kDouble, 1e-13}, {at::kFloat, 1e-5}};

// [n, C] values of a set as one packed row of moments.
Tensor row_of(const Tensor& values) {
  if (values.size(0) == 0) return at::zeros({1, 1 + 2 * values.size(1)}, at::kDouble);
  const Tensor mean = values.mean(0);
  const Tensor count = at::full({1}, static_cast<double>(values.size(0)), at::kDouble);
  return at::cat({count, mean, (values - mean).square().sum(0)}).unsqueeze(0);
}

Tensor rows_of(const std::vector<Tensor>& sets) {
  std::vector<Tensor> rows;
  for (const Tensor& set : sets) rows.push_back(row_of(set));
  return at::cat(rows);
}

Tensor counts(const Tensor& rows) {
  return rows.narrow(1, 0, 1);
}
Tensor means(const Tensor& rows) {
  return rows.narrow(1, 1, kChannels);
}
Tensor variances(const Tensor& rows, double ddof = 0) {
  return rows.narrow(1, 1 + kChannels, kChannels) / (counts(rows) - ddof).clamp_min(1);
}

class CoefficientSteps : public test::OnEachDevice {
 protected:
  // Sets of these sizes with means of their own.
  static std::vector<Tensor> sets_of(const std::vector<int64_t>& sizes) {
    std::vector<Tensor> sets;
    for (const int64_t n : sizes)
      sets.push_back(at::randn({n, kChannels}, at::kDouble) * 2 + static_cast<double>(sets.size()));
    return sets;
  }

  static void expect_close(const Tensor& got, const Tensor& expected, double bound, const char* what) {
    ASSERT_EQ(got.sizes(), expected.sizes()) << what;
    const Tensor wide = got.cpu().to(at::kDouble), wanted = expected.cpu().to(at::kDouble);
    EXPECT_TRUE(at::allclose(wide, wanted, bound, bound, /*equal_nan=*/true)) << what << "\n"
                                                                              << wide << "\n"
                                                                              << wanted;
  }
};

const std::vector<int64_t> kSizes{3, 0, 5, 1, 0, 0};

TEST_P(CoefficientSteps, MergedMomentsAreThoseOfAllValuesOfTheGroup) {
  const std::vector<Tensor> sets = sets_of(kSizes);
  for (const size_t group : {1, 2, 3, 6}) {
    std::vector<Tensor> groups;
    for (size_t first = 0; first < sets.size(); first += group) {
      groups.push_back(
          at::cat(std::vector<Tensor>(sets.begin() + static_cast<std::ptrdiff_t>(first),
                                      sets.begin() + static_cast<std::ptrdiff_t>(first + group))));
    }
    const Tensor merged = merge_moments(there(rows_of(sets)), static_cast<int64_t>(group));
    expect_close(merged, rows_of(groups), 1e-13, "merged");
  }
}

TEST_P(CoefficientSteps, AveragedVariancesLackTheSpreadOfTheMeans) {
  const std::vector<Tensor> sets = sets_of(kSizes);
  const Tensor merged = merge_moments(there(rows_of(sets)), 6, Merge::averaged);
  Tensor expected = row_of(at::cat(sets));
  expected.narrow(1, 1 + kChannels, kChannels)
      .copy_(rows_of(sets).narrow(1, 1 + kChannels, kChannels).sum(0, true));
  expect_close(merged, expected, 1e-13, "averaged");
}

// E[x2] - E[x]^2 in the statistics' precision, as written; far from zero float32 keeps no digit of it.
TEST_P(CoefficientSteps, SquaresAreSubtractedInTheStatisticsPrecision) {
  const std::vector<Tensor> sets = sets_of({3, 0, 5, 2});
  for (const Precision& precision : kPrecisions) {
    const Tensor merged = merge_moments(there(rows_of(sets)), 4, Merge::e_x2, precision.type);
    expect_close(merged, row_of(at::cat(sets)), 100 * precision.bound, "squares");
  }
  std::vector<Tensor> far = sets;
  for (Tensor& set : far) set = set + 1e5;
  const Tensor exact = row_of(at::cat(far));
  const auto lost = [&](Merge merge, at::ScalarType type) {
    const Tensor merged = merge_moments(there(rows_of(far)), 4, merge, type).cpu();
    return (variances(merged) - variances(exact)).abs().max().item<double>();
  };
  EXPECT_LT(lost(Merge::chan, at::kFloat), 1e-8);
  EXPECT_LT(lost(Merge::e_x2, at::kDouble), 1e-4);
  EXPECT_GT(lost(Merge::e_x2, at::kFloat), 1);
}

// A product that is not rounded before the subtraction would leave its rounding error here, of either sign.
TEST_P(CoefficientSteps, ConstantChannelsHaveNoVarianceBySquares) {
  const Tensor value = at::linspace(1, 50, kChannels, at::kFloat).to(at::kDouble);
  const Tensor row = at::cat({at::full({1}, 6.0, at::kDouble), value, at::zeros_like(value)}).unsqueeze(0);
  const Tensor merged = merge_moments(there(row), 1, Merge::e_x2, at::kFloat).cpu();
  EXPECT_TRUE(at::equal(merged, row)) << merged;
}

TEST_P(CoefficientSteps, ForwardCoefficientsAreTheFormulas) {
  const Tensor rows = rows_of(sets_of(kSizes));
  const Tensor gamma = at::randn({kChannels}, at::kDouble), beta = at::randn({kChannels}, at::kDouble);
  for (const Precision& precision : kPrecisions) {
    for (const bool affine : {false, true}) {
      for (const bool mean_only : {false, true}) {
        const auto given = [&](const Tensor& t) { return affine ? there(t, precision.type) : Tensor(); };
        const NormOptions options{
            .eps = kEps, .mean_only = mean_only, .weight = given(gamma), .bias = given(beta)};
        const Coefficients k = forward_coefficients(there(rows), options, precision.type);
        const Tensor s =
            mean_only ? at::ones_like(means(rows)) : (variances(rows) + kEps).rsqrt();  // of an empty set too
        EXPECT_EQ(k.scale.scalar_type(), precision.type);
        EXPECT_FALSE(k.r.defined() || k.d.defined());
        expect_close(k.mean, means(rows), precision.bound, "mean");
        expect_close(k.invstd, s, precision.bound, "invstd");
        expect_close(k.scale, affine ? s * gamma : s, precision.bound, "scale");
        expect_close(k.shift, affine ? beta.expand_as(s) : at::zeros_like(s), precision.bound, "shift");
      }
    }
  }
}

TEST_P(CoefficientSteps, TheVarianceThatNormalisesLosesItsDegreesOfFreedom) {
  const Tensor rows = rows_of(sets_of(kSizes));
  const Coefficients k = forward_coefficients(there(rows), {.eps = kEps, .ddof = 1}, at::kDouble);
  expect_close(k.invstd, (variances(rows, 1) + kEps).rsqrt(), 1e-13, "invstd");
  expect_close(k.count, counts(rows).clamp_min(1).expand_as(means(rows)), 0, "count");
}

TEST_P(CoefficientSteps, ARowThatAllSetsShareIsReadForEach) {
  const Tensor row = there(row_of(sets_of({5})[0]));
  const Tensor shared = row.expand({3, row.size(1)}), repeated = shared.contiguous();
  const Coefficients a = forward_coefficients(shared, {.eps = kEps}, at::kDouble);
  const Coefficients b = forward_coefficients(repeated, {.eps = kEps}, at::kDouble);
  EXPECT_TRUE(at::equal(a.mean, b.mean));
  EXPECT_TRUE(at::equal(a.scale, b.scale));
  EXPECT_TRUE(at::equal(a.count, b.count));
  EXPECT_TRUE(at::equal(merge_moments(shared, 3), merge_moments(repeated, 3)));
}

TEST_P(CoefficientSteps, RenormalisationClipsItsCorrections) {
  const Tensor rows = rows_of(sets_of({3, 0, 50, 4}));
  const Tensor running =
      at::stack({at::randn({kChannels}, at::kDouble), at::rand({kChannels}, at::kDouble) * 9});
  const Tensor gamma = at::randn({kChannels}, at::kDouble), beta = at::randn({kChannels}, at::kDouble);
  for (const Precision& precision : kPrecisions) {
    const auto given = [&](const Tensor& t) { return there(t, precision.type); };
    const NormOptions options{
        .eps = kEps,
        .weight = given(gamma),
        .bias = given(beta),
        .renorm = Renormalisation{.running = given(running), .r_max = 1.5, .d_max = 0.7},
    };
    const Coefficients k = forward_coefficients(there(rows), options, precision.type);
    const Tensor deviation = (running[1] + kEps).sqrt(), sigma = (variances(rows) + kEps).sqrt();
    const Tensor r = (sigma / deviation).clamp(1 / 1.5, 1.5);
    const Tensor d = ((means(rows) - running[0]) / deviation).clamp(-0.7, 0.7);
    EXPECT_GT((r == 1.5).sum().item<int64_t>() + (d.abs() == 0.7).sum().item<int64_t>(), 0);
    expect_close(k.r, r, precision.bound, "r");
    expect_close(k.d, d, precision.bound, "d");
    expect_close(k.scale, gamma * r / sigma, precision.bound, "scale");
    expect_close(k.shift, beta + gamma * d, precision.bound, "shift");
  }
}

TEST_P(CoefficientSteps, WhatIsNotFiniteStaysInItsChannel) {
  Tensor rows = rows_of(sets_of({3, 4}));
  rows[0][1 + 2] = kNan;  // a mean
  const Tensor running = at::ones({2, kChannels}, at::kDouble);
  const Renormalisation renorm{.running = there(running), .r_max = 2, .d_max = 1};
  const Coefficients k = forward_coefficients(there(rows), {.eps = kEps, .renorm = renorm}, at::kDouble);
  const Tensor merged = merge_moments(there(rows), 2).cpu();
  for (int64_t c = 0; c < kChannels; ++c) {
    EXPECT_EQ(k.d.isnan()[0][c].item<bool>(), c == 2) << "clipping lets a NaN through";
    EXPECT_EQ(k.shift.isnan()[0][c].item<bool>(), c == 2);
    EXPECT_FALSE(k.shift.isnan()[1][c].item<bool>());
    EXPECT_EQ(merged[0][1 + c].isnan().item<bool>(), c == 2);
  }
}

// dx = a g + b (x - mean) + c over one batch of sets, with the sums that the sweep would give.
struct Backward {
  Tensor dx, dweight, dbias;
};

Backward backward_of(const std::vector<Tensor>& x, const std::vector<Tensor>& g, const Tensor& rows,
                     const Tensor& shared_rows, bool pooled, const Tensor& weight) {
  const Coefficients forward =
      forward_coefficients(shared_rows, {.eps = kEps, .weight = weight}, at::kDouble);
  std::vector<Tensor> sums;
  for (size_t s = 0; s < x.size(); ++s) {
    const Tensor centred = x[s] - forward.mean[static_cast<int64_t>(s)].cpu();
    sums.push_back(at::stack({g[s].sum(0), (g[s] * centred).sum(0)}));
  }
  const Tensor local = at::stack(sums).to(rows.device());
  const Tensor group = pooled ? local.sum(0, true).expand_as(local).contiguous() : local;
  const BackwardCoefficients k = backward_coefficients(forward, local, group, false, weight);
  std::vector<Tensor> dx;
  for (size_t s = 0; s < x.size(); ++s) {
    const auto i = static_cast<int64_t>(s);
    dx.push_back(k.a[i].cpu() * g[s] + k.b[i].cpu() * (x[s] - k.mean[i].cpu()) + k.c[i].cpu());
  }
  return {at::cat(dx), k.dweight, k.dbias};
}

TEST_P(CoefficientSteps, BackwardGivesTheGradientsOfBatchNorm) {
  const std::vector<Tensor> sets = sets_of({3, 0, 5, 2});
  std::vector<Tensor> gradients;
  for (const Tensor& set : sets) gradients.push_back(at::randn_like(set));
  const Tensor gamma = at::rand({kChannels}, at::kDouble) + 0.5;
  const auto expected_of = [&](const std::vector<Tensor>& x, const std::vector<Tensor>& g) {
    std::vector<Tensor> dx;
    const Tensor w = gamma.clone().requires_grad_(true), b = at::zeros_like(gamma).requires_grad_(true);
    for (size_t s = 0; s < x.size(); ++s) {
      const Tensor leaf = x[s].clone().requires_grad_(true);
      if (x[s].size(0) > 0) at::batch_norm(leaf, w, b, {}, {}, true, 0.1, kEps, false).backward(g[s]);
      dx.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
    }
    return Backward{at::cat(dx), w.grad(), b.grad()};
  };
  const Tensor rows = there(rows_of(sets));
  const Tensor whole = merge_moments(rows, 4).expand({4, rows.size(1)});
  for (const bool pooled : {false, true}) {
    const Backward got = backward_of(sets, gradients, rows, pooled ? whole : rows, pooled, there(gamma));
    const Backward expected =
        pooled ? expected_of({at::cat(sets)}, {at::cat(gradients)}) : expected_of(sets, gradients);
    expect_close(got.dx, expected.dx, 1e-12, "dx");
    expect_close(got.dweight, expected.dweight, 1e-12, "dweight");
    expect_close(got.dbias, expected.dbias, 1e-12, "dbias");
  }
}

TEST_P(CoefficientSteps, BackwardCoefficientsAreTheFormulas) {
  const Tensor rows = rows_of(sets_of({3, 0, 5}));
  const Tensor running = at::stack({at::zeros({kChannels}, at::kDouble), at::ones({kChannels}, at::kDouble)});
  const Tensor gamma = at::randn({kChannels}, at::kDouble), local = at::randn({3, 2, kChannels}, at::kDouble);
  for (const Precision& precision : kPrecisions) {
    const auto given = [&](const Tensor& t) { return there(t, precision.type); };
    for (const bool mean_only : {false, true}) {
      const NormOptions options{
          .eps = kEps,
          .mean_only = mean_only,
          .weight = given(gamma),
          .renorm = Renormalisation{.running = given(running), .r_max = 1.2, .d_max = 0.3},
      };
      const Coefficients forward = forward_coefficients(there(rows), options, precision.type);
      const auto wide = [](const Tensor& t) { return t.cpu().to(at::kDouble); };
      const Tensor s = wide(forward.invstd), r = wide(forward.r), d = wide(forward.d);
      const Tensor a = gamma * r * s, n = counts(rows).clamp_min(1);
      const Tensor sum_a = local.select(1, 0), sum_b = local.select(1, 1);
      BackwardCoefficients k =
          backward_coefficients(forward, given(local), given(local), mean_only, given(gamma));
      expect_close(k.a, a, precision.bound, "a");
      expect_close(k.c, -a * sum_a / n, precision.bound, "c");
      expect_close(k.b, mean_only ? at::zeros_like(a) : -a * s.square() * sum_b / n, precision.bound, "b");
      expect_close(k.dweight, (r * s * sum_b + d * sum_a).sum(0), 10 * precision.bound, "dweight");
      expect_close(k.dbias, sum_a.sum(0), precision.bound, "dbias");
      // No gradient passes through the moments.
      k = backward_coefficients(forward, given(local), {}, mean_only, given(gamma));
      expect_close(k.a, a, precision.bound, "a alone");
      expect_close(at::stack({k.b, k.c}), at::zeros({2, 3, kChannels}, at::kDouble), 0, "b and c");
    }
  }
}

TEST_P(CoefficientSteps, RunningStatisticsTakeTheWeightedUnbiasedVariancesOfTheRowsThatTakePart) {
  const std::vector<Tensor> sets = sets_of({3, 4, 5});
  Tensor rows = rows_of(sets);
  rows[1].fill_(kNan);  // takes no part, so it is not read
  const Tensor weights = at::tensor({0.25, 0.5, 0.125, 1.0, 0.0, 1.0}, at::kDouble).view({2, 3});
  const Tensor before = at::rand({2, kChannels}, at::kDouble);
  for (const Precision& precision : kPrecisions) {
    const RunningUpdate update{
        .running = there(before, precision.type).clone(),
        .weights = there(weights),
        .decay = 0.75,
        .nonfinite_count = there(at::zeros({}), at::kLong),
    };
    update_running(update, there(rows));
    const auto moved = [&](const Tensor& old, const Tensor& first, const Tensor& last) {
      return 0.75 * old + 0.25 * first + 0.125 * last;
    };
    const Tensor mean = moved(before[0], sets[0].mean(0), sets[2].mean(0));
    const Tensor var = moved(before[1], sets[0].var(0, /*unbiased=*/true), sets[2].var(0, true));
    expect_close(update.running, at::stack({mean, var}), precision.bound, "running statistics");
    EXPECT_EQ(update.nonfinite_count.item<int64_t>(), 0);
  }
}

TEST_P(CoefficientSteps, AChannelThatIsNotFiniteKeepsItsRunningStatisticsAndIsCounted) {
  Tensor rows = rows_of(sets_of({3, 4}));
  rows[1][1 + 2] = kNan;                                                 // a mean
  rows[0][1 + kChannels + 5] = std::numeric_limits<double>::infinity();  // a sum of squares
  rows[0][1 + 4] = 1e300;                                                // finite in float64 alone
  const Tensor weights = at::tensor({0.1, 0.1, 1.0, 1.0}, at::kDouble).view({2, 2});
  for (const Precision& precision : kPrecisions) {
    const bool narrow = precision.type == at::kFloat;
    const Tensor before = there(at::rand({2, kChannels}, at::kDouble), precision.type);
    const RunningUpdate update{
        .running = before.clone(),
        .weights = there(weights),
        .decay = 0.8,
        .nonfinite_count = there(at::full({}, 10), at::kLong),
    };
    update_running(update, there(rows));
    EXPECT_EQ(update.nonfinite_count.item<int64_t>(), narrow ? 13 : 12);
    for (int64_t c = 0; c < kChannels; ++c) {
      const bool stays = c == 2 || c == 5 || (c == 4 && narrow);
      EXPECT_EQ(at::equal(update.running.select(1, c), before.select(1, c)), stays) << c;
    }
  }
}

INSTANTIATE_ON_EACH_DEVICE(CoefficientSteps);

}  // namespace
}  // namespace bnlab::kernels::finish_test
