// The update of running statistics by sets that belong to one tower each: where a row of moments is not
// finite, the statistics of its tower stand in for it. On CUDA too where there is a device.
#include <torch/types.h>

#include <limits>
#include <vector>

#include "strategies/kernels/kernels.hpp"
#include "tests/strategies/kernels/on_each_device.hpp"

namespace bnlab::kernels::running_update_test {
namespace {

using at::Tensor;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kChannels = 7;

struct Precision {
  at::ScalarType type;
  double bound;
};

class RunningUpdates : public test::OnEachDevice {
 protected:
  static void expect_near(const Tensor& got, const Tensor& expected, double bound, const char* what) {
    EXPECT_TRUE(at::allclose(got.cpu().to(at::kDouble), expected, bound, bound)) << what;
  }
};

// (n, mean, M2) of a set [n, C].
Tensor row_of(const Tensor& set) {
  const Tensor mean = set.mean(0);
  return at::cat({at::full({1}, set.size(0), at::kDouble), mean, (set - mean).square().sum(0)});
}

// Sets 0 and 1 are of tower 0, set 2 of tower 1, set 3 of tower 2, which takes no part.
TEST_P(RunningUpdates, TheStatisticsOfItsTowerStandInForARowThatIsNotFinite) {
  std::vector<Tensor> sets, all;
  for (const int64_t n : {3, 4, 5, 6}) {
    sets.push_back(at::randn({n, kChannels}, at::kDouble));
    all.push_back(row_of(sets.back()));
  }
  const Tensor rows = at::stack(all);
  rows[1][1 + 2] = kNan;                                                    // one of tower 0's two
  for (const int64_t set : {0, 1, 2}) rows[set][1 + kChannels + 5] = kNan;  // all that take part
  const Tensor weights =
      at::tensor({0.05, 0.1, 0.05, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 2.0}, at::kDouble).view({3, 4});
  const Tensor before = at::rand({2, kChannels}, at::kDouble);
  const Tensor towers_before = at::rand({3, 2, kChannels}, at::kDouble);
  towers_before.select(2, 5).copy_(before.select(1, 5).unsqueeze(0).expand({3, 2}));
  for (const Precision& precision : {Precision{at::kDouble, 1e-13}, {at::kFloat, 1e-5}}) {
    const RunningUpdate update{.running = there(before, precision.type).clone(),
                               .weights = there(weights),
                               .decay = 0.8,
                               .nonfinite_count = there(at::zeros({}), at::kLong),
                               .tower_running = there(towers_before, precision.type).clone(),
                               .step_weight = 0.2};
    update_running(update, there(rows));
    EXPECT_EQ(update.nonfinite_count.item<int64_t>(), 4);
    const auto written = [&](int64_t set, int64_t c) {
      const Tensor x = sets[static_cast<size_t>(set)].select(1, c);
      return at::stack({x.mean(), x.var(/*unbiased=*/true)});
    };
    for (int64_t c = 0; c < kChannels; ++c) {
      const Tensor own = towers_before[0].select(1, c), pair = before.select(1, c);
      const Tensor second = c == 2 ? own : written(1, c);
      const Tensor moved = 0.8 * pair + 0.05 * written(0, c) + 0.1 * second + 0.05 * written(2, c);
      const Tensor of_tower =
          0.8 * own + 0.2 * (c == 2 ? written(0, c) : (written(0, c) + written(1, c)) / 2);
      expect_near(update.running.select(1, c), c == 5 ? pair : moved, precision.bound, "running statistics");
      expect_near(update.tower_running[0].select(1, c), c == 5 ? own : of_tower, precision.bound,
                  "those of tower 0");
    }
    EXPECT_TRUE(at::equal(update.tower_running[2], there(towers_before, precision.type)[2]));
  }
}

INSTANTIATE_ON_EACH_DEVICE(RunningUpdates);

}  // namespace
}  // namespace bnlab::kernels::running_update_test
