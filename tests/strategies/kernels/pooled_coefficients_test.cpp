// The steps after an exchange against the functions that they are made of, one after the other: the same bits
// on the CPU; on CUDA too where there is a device, but for sums, which LibTorch adds up there in an order of
// its own.
#include "strategies/kernels/kernels.hpp"
#include "tests/strategies/kernels/on_each_device.hpp"

namespace bnlab::kernels {
namespace {

using at::Tensor;

constexpr int64_t kTowers = 36, kChannels = 7;  // more towers than LibTorch adds up in order

class PooledCoefficients : public test::OnEachDevice {
 protected:
  // Of every tower; some are empty, and of one a mean is not finite.
  static Tensor rows() {
    const Tensor count = at::randint(0, 4, {kTowers, 1}, at::kDouble);
    const Tensor mean = at::randn({kTowers, kChannels}, at::kDouble) * (count > 0);
    const Tensor m2 = at::rand({kTowers, kChannels}, at::kDouble) * count;
    mean[5][2] = at::scalar_tensor(NAN, at::kDouble);
    return at::cat({count, mean, m2}, 1).to(device());
  }
  static Tensor numbers(at::IntArrayRef sizes, at::ScalarType type) {
    return at::rand(sizes, at::kDouble).to(device(), type);
  }
  // A copy of the row of each set's group.
  static Tensor local_rows(const Tensor& groups, const PooledRows& pooled) {
    return groups.repeat_interleave(pooled.group, 0).narrow(0, pooled.first, pooled.sets).contiguous();
  }
  static void expect_same(const Tensor& got, const Tensor& expected, const char* what) {
    EXPECT_TRUE(at::allclose(got, expected, 0, 0, /*equal_nan=*/true)) << what;
  }
  static void expect_same_sums(const Tensor& got, const Tensor& expected, const char* what) {
    const double bound = !device().is_cuda() ? 0 : got.scalar_type() == at::kDouble ? 1e-13 : 1e-5;
    EXPECT_TRUE(at::allclose(got, expected, bound, bound)) << what;
  }
};

TEST_P(PooledCoefficients, AreTheStepsOneAfterTheOther) {
  const Tensor towers = rows();
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Tensor weight = numbers({kChannels}, type), bias = numbers({kChannels}, type);
    const Tensor before = numbers({2, kChannels}, type), sums = numbers({kTowers, 2, kChannels}, type);
    for (const int64_t group : {1, 4, 18, 36}) {
      for (const Merge merge : {Merge::chan, Merge::averaged, Merge::e_x2}) {
        for (const bool merged : {false, true}) {
          const Tensor groups = merge_moments(towers, group, merge, type);
          const PooledRows pooled{
              .rows = merged ? groups : towers,
              .layout = merged ? PooledLayout::groups : PooledLayout::towers,
              .group = group,
              .first = 3,
              .sets = 21,
          };
          const Tensor weights = numbers({2, kTowers / group}, at::kDouble);
          const auto update = [&] {
            return RunningUpdate{
                .running = before.clone(),
                .weights = weights,
                .decay = 0.75,
                .nonfinite_count = at::zeros({}, at::TensorOptions(device()).dtype(at::kLong)),
            };
          };
          const RunningUpdate expected_update = update(), got_update = update();
          NormOptions options{
              .eps = 1e-2, .mean_only = merge == Merge::averaged, .weight = weight, .bias = bias};
          const auto by = [&](const RunningUpdate& running) {
            if (merge == Merge::chan)
              options.renorm = Renormalisation{.running = running.running, .r_max = 1.5, .d_max = 0.7};
            return options;
          };
          const Coefficients k = forward_coefficients(local_rows(groups, pooled), by(expected_update), type);
          update_running(expected_update, groups);
          const Coefficients got = pooled_forward(pooled, merge, by(got_update), type, got_update);
          expect_same(got.mean, k.mean, "mean");
          expect_same(got.invstd, k.invstd, "invstd");
          expect_same(got.scale, k.scale, "scale");
          expect_same(got.shift, k.shift, "shift");
          expect_same(got.count, k.count, "count");
          expect_same(got_update.running, expected_update.running, "running statistics");
          EXPECT_EQ(got_update.nonfinite_count.item<int64_t>(),
                    expected_update.nonfinite_count.item<int64_t>());
          EXPECT_FALSE(at::equal(got_update.running, before));

          const Tensor summed = sums.reshape({kTowers / group, group, 2, kChannels}).sum(1);
          const Tensor local = numbers({21, 2, kChannels}, type);
          options.renorm.reset();
          const Coefficients finite =
              forward_coefficients(at::ones({21, 1 + 2 * kChannels}, towers.options()), options, type);
          const BackwardCoefficients expected =
              backward_coefficients(finite, local, local_rows(summed, pooled), options.mean_only, weight);
          PooledRows pooled_sums = pooled;
          pooled_sums.rows = merged ? summed : sums;
          const BackwardCoefficients back =
              pooled_backward(finite, local, pooled_sums, options.mean_only, weight);
          expect_same(back.a, expected.a, "a");
          expect_same_sums(back.b, expected.b, "b");
          expect_same_sums(back.c, expected.c, "c");
          expect_same(back.dweight, expected.dweight, "dweight");
          expect_same(back.dbias, expected.dbias, "dbias");
        }
      }
    }
  }
}

// Each set by the moments of its passes alone, wherever its tower stands among those of all ranks.
TEST_P(PooledCoefficients, MergeThePassesOfEachSet) {
  constexpr int64_t kPasses = 4, kSets = kTowers / kPasses;
  const Tensor passes = rows(), sets = merge_moments(passes, kPasses);
  const auto update = [&] {
    return RunningUpdate{
        .running = at::zeros({2, kChannels}, passes.options()),
        .weights = at::ones({2, kSets}, passes.options()),
        .decay = 0.5,
    };
  };
  const RunningUpdate got_update = update(), expected_update = update();
  const PooledRows so_far{.rows = passes, .layout = PooledLayout::passes, .group = kPasses, .sets = kSets};
  const Coefficients got = pooled_forward(so_far, Merge::chan, {.eps = 1e-2}, at::kDouble, got_update);
  const Coefficients expected = forward_coefficients(sets, {.eps = 1e-2}, at::kDouble);
  update_running(expected_update, sets);
  expect_same(got.mean, expected.mean, "mean");
  expect_same(got.invstd, expected.invstd, "invstd");
  expect_same(got.count, expected.count, "count");
  expect_same(got_update.running, expected_update.running, "running statistics");
}

// Three ranks hold the towers; what they sum up meets by addition.
TEST_P(PooledCoefficients, SumsOfAllRanksStandForTheMomentsOfTheGroups) {
  const Tensor towers = rows();
  const std::vector<int64_t> first{0, 3, 24, kTowers};
  for (const int64_t group : {1, 4, 18, 36}) {
    for (const Merge merge : {Merge::chan, Merge::averaged}) {
      Tensor sums = at::zeros({kTowers / group, towers.size(1)}, towers.options());
      for (size_t r = 0; r + 1 < first.size(); ++r) {
        const Tensor local = towers.narrow(0, first[r], first[r + 1] - first[r]);
        sums += sum_moments(local, first[r], group, kTowers / group, merge);
      }
      const PooledRows pooled{
          .rows = sums, .layout = PooledLayout::group_sums, .group = group, .first = 3, .sets = 21};
      const auto update = [&] {
        return RunningUpdate{
            .running = at::zeros({2, kChannels}, towers.options()),
            .weights = at::ones({2, kTowers / group}, towers.options()),
            .decay = 0,
        };
      };
      const RunningUpdate got_update = update(), expected_update = update();
      const Coefficients k = pooled_forward(pooled, merge, {.eps = 1e-2}, at::kDouble, got_update);
      const Tensor groups = merge_moments(towers, group, merge);
      const Coefficients expected =
          forward_coefficients(local_rows(groups, pooled), {.eps = 1e-2}, at::kDouble);
      update_running(expected_update, groups);
      for (const auto& [got, right] : {std::pair(k.mean, expected.mean),
                                       {k.invstd, expected.invstd},
                                       {k.count, expected.count},
                                       {got_update.running, expected_update.running}}) {
        EXPECT_TRUE(at::allclose(got, right, 1e-12, 1e-12, /*equal_nan=*/true));
      }
    }
  }
}

TEST_P(PooledCoefficients, AVarianceThatRoundingLeavesBelowZeroIsNone) {
  const Tensor sums = at::full({1, 1 + 2 * kChannels}, 4e8, at::kDouble);
  sums[0][0] = 4;
  sums.narrow(1, 1 + kChannels, kChannels).fill_(4e16 - 1e3);
  sums[0][1 + kChannels + 2] = NAN;
  const PooledRows pooled{
      .rows = sums.to(device()), .layout = PooledLayout::group_sums, .group = 2, .first = 0, .sets = 2};
  const Tensor invstd = pooled_forward(pooled, Merge::chan, {.eps = 1e-2}, at::kDouble, {}).invstd.cpu();
  EXPECT_TRUE(at::equal(invstd.isnan(), at::arange(kChannels).eq(2).expand({2, kChannels})));
  EXPECT_EQ(invstd[1][0].item<double>(), 10);
}

TEST_P(PooledCoefficients, TowersAreSummedUpForTheirGroups) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Tensor local = numbers({21, 2, kChannels}, type);
    for (const int64_t group : {1, 4, 18, 36}) {
      const Tensor out = at::full({kTowers / group, 2, kChannels}, NAN, local.options());
      sum_towers(local, 3, group, out);
      const Tensor all = at::zeros({kTowers, 2, kChannels}, local.options());
      all.narrow(0, 3, 21).copy_(local);
      const Tensor expected = all.view({kTowers / group, group, 2, kChannels}).sum(1);
      EXPECT_TRUE(at::allclose(out, expected, 1e-6, 1e-6)) << group;
    }
  }
}

TEST_P(PooledCoefficients, RunningStatisticsGiveTheirCoefficients) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Tensor mean = numbers({kChannels}, type), var = numbers({kChannels}, type);
    const Tensor weight = numbers({kChannels}, type), bias = numbers({kChannels}, type);
    const Tensor invstd = (var.cpu() + 1e-2).rsqrt();
    const auto expect_row = [](const Tensor& got, const Tensor& expected) {
      EXPECT_EQ(got.sizes(), at::IntArrayRef({1, kChannels}));
      EXPECT_TRUE(at::allclose(got[0].cpu(), expected.cpu(), 1e-6, 1e-6));
    };
    const Coefficients k = running_coefficients(mean, var, 1e-2, weight, bias);
    expect_row(k.mean, mean);
    EXPECT_FALSE(k.mean.is_alias_of(mean)) << "the running statistics may change before the backward pass";
    expect_row(k.invstd, invstd);
    expect_row(k.scale, invstd * weight.cpu());
    expect_row(k.shift, bias);
    const Coefficients plain = running_coefficients(mean, {}, 1e-2, {}, {});
    expect_row(plain.scale, at::ones_like(mean));
    expect_row(plain.shift, at::zeros_like(mean));
  }
}

INSTANTIATE_ON_EACH_DEVICE(PooledCoefficients);

}  // namespace
}  // namespace bnlab::kernels
