// The coefficients of norms within samples against their formulas in float64 and LibTorch's own group_norm;
// on CUDA too where there is a device.
#include "strategies/kernels/kernels.hpp"

#include <torch/types.h>

#include <limits>
#include <vector>

#include "tests/strategies/kernels/on_each_device.hpp"

namespace bnlab::kernels::sample_finish_test {
namespace {

using at::Tensor;

constexpr int64_t kSamples = 5, kChannels = 12, kPositions = 9;
constexpr double kEps = 1e-2;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Precision {
  at::ScalarType type;
  double bound;
};
const std::vector<Precision> kPrecisions{{at::kDouble, 1e-12}, {at::kFloat, 1e-5}};

// The moments of x [n, C, positions], packed.
Tensor rows_of(const Tensor& x) {
  const Tensor mean = x.mean(2);
  const Tensor count = at::full({x.size(0), 1}, static_cast<double>(x.size(2)), at::kDouble);
  return at::cat({count, mean, (x - mean.unsqueeze(2)).square().sum(2)}, 1);
}

void expect_close(const Tensor& got, const Tensor& expected, double bound, const char* what) {
  EXPECT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_TRUE(at::allclose(got.cpu().to(at::kDouble), expected, bound, bound)) << what;
}

class SampleCoefficients : public test::OnEachDevice {
 protected:
  Tensor x_ = at::randn({kSamples, kChannels, kPositions}, at::kDouble) * 2 +
              at::arange(kChannels, at::kDouble).view({1, -1, 1});
  Tensor dy_ = at::randn({kSamples, kChannels, kPositions}, at::kDouble);
  Tensor gamma_ = at::randn({kChannels}, at::kDouble), beta_ = at::randn({kChannels}, at::kDouble);
};

TEST_P(SampleCoefficients, GiveGroupNormAndItsGradients) {
  for (const Precision& precision : kPrecisions) {
    for (const int64_t groups : {1, 3, 12}) {
      for (const bool affine : {true, false}) {
        const Tensor leaf = x_.clone().requires_grad_(true);
        const Tensor w = (affine ? gamma_ : at::ones_like(gamma_)).clone().requires_grad_(true);
        const Tensor b = (affine ? beta_ : at::zeros_like(beta_)).clone().requires_grad_(true);
        const Tensor y = at::group_norm(leaf, groups, w, b, kEps);
        y.backward(dy_);

        const Tensor weight = affine ? there(gamma_, precision.type) : Tensor();
        const Tensor bias = affine ? there(beta_, precision.type) : Tensor();
        const Coefficients k = sample_forward(there(rows_of(x_)), groups, kEps, weight, bias, precision.type);
        const auto wide = [](const Tensor& t) { return t.cpu().to(at::kDouble); };
        const Tensor centred = x_ - wide(k.mean).unsqueeze(2);
        expect_close(centred * wide(k.scale).unsqueeze(2) + wide(k.shift).unsqueeze(2), y.detach(),
                     precision.bound, "y");
        EXPECT_TRUE(at::equal(wide(k.count), at::full_like(wide(k.mean), kPositions * kChannels / groups)));

        const Tensor sums = at::stack({dy_.sum(2), (dy_ * centred).sum(2)}, 1);
        const BackwardCoefficients back = sample_backward(k, there(sums, precision.type), groups, weight);
        expect_close(
            wide(back.a).unsqueeze(2) * dy_ + wide(back.b).unsqueeze(2) * centred + wide(back.c).unsqueeze(2),
            leaf.grad(), precision.bound, "dx");
        expect_close(back.dweight, w.grad(), 10 * precision.bound, "dweight");
        expect_close(back.dbias, b.grad(), 10 * precision.bound, "dbias");
        EXPECT_TRUE(back.mean.is_same(k.mean));
      }
    }
  }
}

// As a rank without samples has it.
TEST_P(SampleCoefficients, ARowWithoutPositionsGivesFiniteNumbersAndNoGradients) {
  const Tensor rows = there(at::zeros({1, 1 + 2 * kChannels}, at::kDouble));
  const Coefficients k = sample_forward(rows, 4, kEps, {}, {}, at::kFloat);
  expect_close(k.count, at::ones({1, kChannels}, at::kDouble), 0, "count");
  expect_close(k.invstd, at::full({1, kChannels}, 10.0, at::kDouble), 1e-6, "invstd");
  const BackwardCoefficients back =
      sample_backward(k, there(at::zeros({1, 2, kChannels}), at::kFloat), 4, {});
  expect_close(at::cat({back.b, back.c}), at::zeros({2, kChannels}, at::kDouble), 0, "b and c");
  expect_close(at::stack({back.dweight, back.dbias}), at::zeros({2, kChannels}, at::kDouble), 0,
               "parameters");
}

TEST_P(SampleCoefficients, WhatIsNotFiniteStaysInItsGroup) {
  Tensor rows = rows_of(x_);
  rows[1][1 + 5] = kNan;  // a mean of sample 1, group 1 of 3
  const Coefficients k = sample_forward(there(rows), 3, kEps, {}, {}, at::kDouble);
  const Tensor nonfinite = at::zeros({kSamples, kChannels}, at::kBool);
  nonfinite[1].narrow(0, 4, 4).fill_(true);
  EXPECT_TRUE(at::equal(k.mean.isnan().cpu(), nonfinite));
  EXPECT_TRUE(at::equal(k.scale.isnan().cpu(), nonfinite));

  const Coefficients sound = sample_forward(there(rows_of(x_)), 3, kEps, {}, {}, at::kDouble);
  Tensor sums = at::randn({kSamples, 2, kChannels}, at::kDouble);
  sums[1][0][5] = kNan;
  const BackwardCoefficients back = sample_backward(sound, there(sums), 3, {});
  EXPECT_TRUE(at::equal(back.c.isnan().cpu(), nonfinite));
  EXPECT_FALSE(back.b.isnan().any().item<bool>());
  EXPECT_TRUE(at::equal(back.dbias.isnan().cpu(), at::arange(kChannels).eq(5)));
}

INSTANTIATE_ON_EACH_DEVICE(SampleCoefficients);

}  // namespace
}  // namespace bnlab::kernels::sample_finish_test
