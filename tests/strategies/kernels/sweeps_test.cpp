// The sweeps against their formulas written with plain ATen operations in float64, slice by slice, on
// every shape, layout, dtype and cut; on CUDA too where there is a device.
#include "strategies/kernels/kernels.hpp"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "harness/strategy.hpp"
#include "harness/support/error.hpp"
#include "tests/strategies/kernels/formulas.hpp"

namespace bnlab::kernels {
namespace {

using at::Tensor;

void expect_close(const Tensor& got, const Tensor& expected, double relative, double absolute,
                  const char* what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  const Tensor wide = got.to(at::kDouble);
  EXPECT_TRUE(at::allclose(wide, expected, relative, absolute))
      << what << ": largest difference " << (wide - expected).abs().max().item<double>();
}

struct Case {
  std::vector<int64_t> shape;
  Offsets offsets;
};

std::vector<Case> cases() {
  return {
      {{6, 5}, {0, 6}},                  // no plane, odd channels
      {{37, 64}, {0, 10, 10, 37}},       // an empty slice
      {{300, 130}, {0, 150, 300}},       // whole vectors and a tail
      {{4, 3, 7}, {0, 2, 4}},            // three dimensions
      {{5, 8, 1, 1}, {0, 1, 5}},         // one element per plane
      {{4, 16, 24, 32}, {0, 2, 4}},      // even
      {{5, 1, 9, 11}, {0, 0, 4, 5, 5}},  // one channel, empty first and last
      {{3, 24, 13, 17}, {0, 3}},         // nothing is a power of two
      {{2, 4, 150, 160}, {0, 1, 2}},     // planes longer than a block
      {{9, 70, 31, 30}, {0, 8, 9}},      // several units per slice
      {{2, 6, 3, 5, 7}, {0, 1, 2}},      // five dimensions
      {{1, 2100, 4, 5}, {0, 1}},         // more channels than a block holds rows
      {{0, 4, 3, 3}, {0, 0, 0}},         // no rows at all
      {{3, 4, 0, 3}, {0, 1, 3}},         // no pixels
  };
}

// Contiguous, channels_last (any number of dimensions), or neither (every other column of a wider tensor).
Tensor arrange(const Tensor& x, const std::string& layout) {
  if (layout == "channels_last") return x.movedim(1, -1).contiguous().movedim(-1, 1);
  if (layout == "strided") return at::stack({x, x}, -1).select(-1, 0);
  return x.contiguous();
}

struct Tolerance {
  double relative, absolute;
};
Tolerance tolerance(at::ScalarType dtype) {
  if (dtype == at::kDouble) return {1e-12, 1e-12};
  if (dtype == at::kFloat) return {1e-5, 1e-5};
  if (dtype == at::kHalf) return {2e-3, 1e-3};  // rounding of the result: 2^-11
  return {1e-2, 1e-2};                          // bfloat16: 2^-9
}

class Sweeps : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    at::set_num_threads(1);
    if (device().is_cuda() && !has_cuda_kernels()) GTEST_SKIP() << "this build has no CUDA kernels";
    if (device().is_cuda() && !at::hasCUDA()) GTEST_SKIP() << "no CUDA device on this machine";
  }
  void TearDown() override { unsetenv("BNLAB_CPU_LEVEL"); }
  static at::Device device() { return at::Device(GetParam()); }
  static at::TensorOptions options(at::ScalarType dtype) {
    return at::TensorOptions().dtype(dtype).device(device());
  }
  static Tensor random(at::IntArrayRef shape) { return at::randn(shape, at::kDouble).to(device()); }

  static void check(const Case& test, const std::string& layout, at::ScalarType dtype, Activation activation,
                    bool with_residual);
};

void Sweeps::check(const Case& test, const std::string& layout, at::ScalarType dtype, Activation activation,
                   bool with_residual) {
  const auto tensor = [&] { return arrange((random(test.shape) * 2 + 0.5).to(dtype), layout); };
  const int64_t slices = static_cast<int64_t>(test.offsets.size()) - 1;
  const at::ScalarType statistics = dtype == at::kDouble ? at::kDouble : at::kFloat;
  const auto values = [&] { return random({slices, test.shape[1]}).to(statistics); };
  const Tolerance close = tolerance(dtype);
  const Tensor x = tensor(), dy = tensor(), residual = with_residual ? tensor() : Tensor();
  const Tensor mean = values(), scale = values(), shift = values(), c = values();

  const Tensor packed = moments(x, test.offsets);
  EXPECT_EQ(packed.scalar_type(), at::kDouble);
  const Tensor moments_expected = expected_moments(x, test.offsets);
  const double accuracy = dtype == at::kDouble ? 1e-12 : 2e-6;  // arithmetic in float32
  expect_close(packed, moments_expected, accuracy, accuracy, "moments");

  const Tensor y = normalise(x, test.offsets, mean, scale, shift, activation, residual);
  EXPECT_EQ(y.scalar_type(), dtype);
  if (layout != "strided") EXPECT_EQ(y.strides(), x.strides());
  expect_close(y, expected_normalise(x, test.offsets, mean, scale, shift, activation, residual),
               close.relative, close.absolute, "normalise");

  const Tensor g = expected_gradient(dy, y, activation);
  const Tensor sums = backward_sums(dy, x, y, test.offsets, mean, activation);
  EXPECT_EQ(sums.scalar_type(), statistics);
  const double elements = static_cast<double>(x.numel() / test.shape[1]);
  expect_close(sums, expected_sums(g, x, test.offsets, mean), dtype == at::kDouble ? 1e-12 : 1e-5,
               (dtype == at::kDouble ? 1e-14 : 1e-6) * (1 + elements), "backward_sums");

  const Tensor dx = backward_input(dy, x, y, test.offsets, mean, scale, shift, c, activation);
  EXPECT_EQ(dx.scalar_type(), dtype);
  if (layout != "strided") EXPECT_EQ(dx.strides(), x.strides());
  expect_close(dx, expected_input(g, x, test.offsets, mean, scale, shift, c), close.relative, close.absolute,
               "backward_input");
  expect_close(backward_residual(dy, y, activation), g, 0, 0, "backward_residual");

  if (!with_residual) {  // the sign of y, computed from x
    const FromInput from{.scale = scale, .shift = shift};
    EXPECT_TRUE(at::equal(backward_sums(dy, x, y, test.offsets, mean, activation, from), sums));
    EXPECT_TRUE(
        at::equal(backward_input(dy, x, y, test.offsets, mean, scale, shift, c, activation, from), dx));
  }
}

// A y of the wrong sign shows who reads it.
TEST_P(Sweeps, TheSignOfYIsNotReadWhereItFollowsFromX) {
  const at::TensorOptions in_float = options(at::kFloat);
  const Tensor zero = at::zeros({1, 8}, in_float), one = at::ones({1, 8}, in_float);
  for (const char* layout : {"contiguous", "channels_last"}) {
    const Tensor x = arrange(at::full({2, 8, 5, 5}, 3.0, in_float), layout), dy = at::ones_like(x);
    for (const bool from_input : {true, false}) {
      const FromInput from = from_input ? FromInput{.scale = one, .shift = zero} : FromInput{};
      const double expected = from_input ? 1 : 0;
      const Tensor sums = backward_sums(dy, x, -x, {0, 2}, zero, Activation::relu, from);
      EXPECT_TRUE((sums.select(1, 0) == 50 * expected).all().item<bool>()) << layout;
      const Tensor dx = backward_input(dy, x, -x, {0, 2}, zero, one, zero, zero, Activation::relu, from);
      EXPECT_TRUE((dx == expected).all().item<bool>()) << layout;
    }
  }
}

TEST_P(Sweeps, EqualTheirFormulasForEveryShapeLayoutAndType) {
  for (const Case& test : cases()) {
    for (const char* layout : {"contiguous", "channels_last", "strided"}) {
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        std::ostringstream where;
        where << at::IntArrayRef(test.shape) << " " << layout << " " << dtype;
        SCOPED_TRACE(where.str());
        check(test, layout, dtype, Activation::relu, false);
        check(test, layout, dtype, Activation::none, true);
        check(test, layout, dtype, Activation::relu, true);
      }
    }
  }
}

using SweepsOnTheCpu = Sweeps;

TEST_P(SweepsOnTheCpu, EveryInstructionSetAgrees) {
  for (const char* level : {"baseline", "avx2", "avx512"}) {
    SCOPED_TRACE(level);
    setenv("BNLAB_CPU_LEVEL", level, 1);
    try {
      moments(random({2, 2}), {0, 2});
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("BNLAB_CPU_LEVEL"), std::string::npos);
      std::cout << "skipped " << level << ": this CPU lacks it\n";
      continue;
    }
    for (const Case& test : cases()) {
      for (const char* layout : {"contiguous", "channels_last"})
        for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16})
          check(test, layout, dtype, Activation::relu, true);
    }
  }
}

TEST_P(SweepsOnTheCpu, UnknownInstructionSetIsRefused) {
  setenv("BNLAB_CPU_LEVEL", "mmx", 1);
  EXPECT_THROW(moments(random({2, 2}), {0, 2}), Error);
}

// x = 1e4 + unit noise: float32 has a spacing of 1e-3 there, E[x2] - E[x]2 would lose everything.
TEST_P(Sweeps, MomentsKeepTheirPrecisionFarFromZero) {
  for (const char* layout : {"contiguous", "channels_last"}) {
    const Tensor x = arrange((random({4, 24, 96, 100}) + 1e4).to(at::kFloat), layout);
    const Tensor packed = moments(x, {0, 1, 4}), expected = expected_moments(x, {0, 1, 4});
    expect_close(packed.slice(1, 0, 25), expected.slice(1, 0, 25), 1e-10, 0, "count and mean");
    expect_close(packed.slice(1, 25), expected.slice(1, 25), 1e-6, 0, "M2");
  }
}

TEST_P(Sweeps, MomentsSurviveAnOutlierInTheFirstPlace) {
  for (const char* layout : {"contiguous", "channels_last"}) {
    Tensor x = random({2, 5, 64, 64});
    x.index({0}).select(1, 0).select(1, 0).fill_(1e3);
    x = arrange(x.to(at::kFloat), layout);
    // On a GPU the bound is 2^-24 for each place of the thread that met it.
    expect_close(moments(x, {0, 2}), expected_moments(x, {0, 2}), 2e-5, 1e-6, "moments");
  }
}

TEST_P(Sweeps, ConstantChannelsHaveNoSpread) {
  const Tensor x = at::full({4, 3, 33, 35}, 0.1, options(at::kFloat));
  EXPECT_LT(moments(x, {0, 4}).slice(1, 4).abs().max().item<double>(), 1e-8);
}

TEST_P(Sweeps, ManySlicesInOneCall) {  // more than one launch takes on CUDA
  Offsets offsets = {0};
  for (int64_t s = 0; s < 600; ++s) offsets.push_back(offsets.back() + s % 3);
  check({{offsets.back(), 4, 3, 3}, offsets}, "contiguous", at::kFloat, Activation::relu, true);
  check({{offsets.back(), 4, 3, 3}, offsets}, "channels_last", at::kFloat, Activation::relu, true);
}

TEST_P(Sweeps, UnalignedStorageIsRead) {
  const Tensor wide = random({1 + 2 * 8 * 6 * 6}).to(at::kFloat);
  const Tensor x = wide.slice(0, 1).view({2, 8, 6, 6});
  expect_close(moments(x, {0, 2}), expected_moments(x, {0, 2}), 2e-6, 2e-6, "moments");
}

TEST_P(Sweeps, NotANumberPassesThroughRelu) {
  const Tensor x = at::full({2, 8, 5, 5}, std::nan(""), options(at::kFloat));
  const Tensor one = at::ones({1, 8}, x.options());
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const Tensor y = normalise(x.to(dtype), {0, 2}, one, one, one, Activation::relu, {});
    EXPECT_TRUE(y.isnan().all().item<bool>()) << dtype;
  }
}

TEST_P(SweepsOnTheCpu, ThreadCountDoesNotChangeABit) {
  const int before = at::get_num_threads();
  for (const char* layout : {"contiguous", "channels_last"}) {
    const Tensor x = arrange(random({6, 72, 47, 53}).to(at::kFloat), layout);
    const Tensor dy = arrange(random({6, 72, 47, 53}).to(at::kFloat), layout);
    const Offsets offsets = {0, 1, 6};
    const Tensor values = random({2, 72}).to(at::kFloat);
    std::vector<std::vector<Tensor>> runs;
    for (const int threads : {1, 2, 3, 7}) {
      at::set_num_threads(threads);
      const Tensor y = normalise(x, offsets, values, values, values, Activation::relu, dy);
      runs.push_back({moments(x, offsets), y, backward_sums(dy, x, y, offsets, values, Activation::relu),
                      backward_input(dy, x, y, offsets, values, values, values, values, Activation::relu)});
      for (size_t i = 0; i < runs[0].size(); ++i)
        EXPECT_TRUE(at::equal(runs[0][i], runs.back()[i])) << layout << " result " << i << ", " << threads;
    }
  }
  at::set_num_threads(before);
}

TEST_P(Sweeps, GradientInAnotherLayoutIsTakenAsIs) {
  const Tensor x = arrange(random({2, 16, 8, 8}).to(at::kFloat), "channels_last");
  const Tensor dy = random({2, 16, 8, 8}).to(at::kFloat), zero = at::zeros({1, 16}, x.options());
  const Tensor one = at::ones({1, 16}, x.options());
  const Tensor dx = backward_input(dy, x, {}, {0, 2}, zero, one, zero, zero, Activation::none);
  EXPECT_TRUE(at::equal(dx, dy));
  EXPECT_EQ(dx.strides(), x.strides());
}

TEST_P(Sweeps, WrongArgumentsAreRefused) {
  const Tensor x = random({4, 3, 2, 2}), values = random({1, 3});
  EXPECT_THROW(moments(x, {0, 3}), Error);
  EXPECT_THROW(moments(x, {0, 3, 2, 4}), Error);
  EXPECT_THROW(moments(x, {}), Error);
  EXPECT_THROW(moments(x.to(at::kInt), {0, 4}), Error);
  EXPECT_THROW(moments(x[0][0][0], {0, 2}), Error);
  EXPECT_THROW(normalise(x, {0, 4}, values.to(at::kFloat), values, values, Activation::none, {}), Error);
  EXPECT_THROW(normalise(x, {0, 2, 4}, values, values, values, Activation::none, {}), Error);
  EXPECT_THROW(normalise(x, {0, 4}, values, values, values, Activation::none, x[0]), Error);
  EXPECT_THROW(backward_sums(x, x, {}, {0, 4}, values, Activation::relu), Error);
}

INSTANTIATE_TEST_SUITE_P(On, SweepsOnTheCpu, ::testing::Values("cpu"));
INSTANTIATE_TEST_SUITE_P(On, Sweeps, testing::Values("cpu", "cuda"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace bnlab::kernels
