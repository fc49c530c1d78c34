#include "harness/layer/tensor_json.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace bnlab {
namespace {

using Limits = std::numeric_limits<double>;

TEST(TensorJson, NumbersReadBackExactly) {
  const at::Tensor x = at::tensor({0.1, -0.0, 1.0 / 3, 5e-324, 1e308, 9007199254740993.0, 2.0}, at::kDouble);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor rounded = x.clamp(-6e4, 6e4).to(dtype).view({7, 1});
    const Json text = Json::parse(tensor_json(rounded).dump());
    EXPECT_TRUE(at::equal(read_tensor(text, "x", dtype), rounded)) << dtype;
  }
  EXPECT_TRUE(at::equal(read_vector(Json::parse(vector_json(x).dump()), "x", at::kDouble, 7), x));
}

TEST(TensorJson, WhatJsonHasNoNumberForIsAString) {
  const at::Tensor x = at::tensor({Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}, at::kFloat);
  const Json text = vector_json(x);
  EXPECT_EQ(text, (Json{"NaN", "Infinity", "-Infinity"}));
  EXPECT_TRUE(at::allclose(read_vector(text, "x", at::kFloat, 3), x, 0, 0, /*equal_nan=*/true));
}

TEST(TensorJson, DataIsRowMajorWhateverTheLayoutInMemory) {
  const at::Tensor x = at::arange(8, at::kDouble).view({1, 2, 2, 2});
  EXPECT_EQ(tensor_json(x.contiguous(at::MemoryFormat::ChannelsLast)), tensor_json(x));
}

TEST(TensorJson, AnEmptyTensorKeepsItsShape) {
  const Json text = tensor_json(at::empty({0, 3, 2}, at::kDouble));
  EXPECT_EQ(text, (Json{{"shape", {0, 3, 2}}, {"data", Json::array()}}));
  EXPECT_EQ(read_tensor(text, "x", at::kHalf).sizes(), (at::IntArrayRef{0, 3, 2}));
}

}  // namespace
}  // namespace bnlab
