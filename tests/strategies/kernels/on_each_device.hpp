// Tests of small steps, on the CPU and, where there is one, on a CUDA device:
// INSTANTIATE_ON_EACH_DEVICE(Suite).
#pragma once

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <string>

#include "harness/strategy.hpp"

namespace bnlab::test {

class OnEachDevice : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    at::manual_seed(7);
    if (device().is_cuda() && !has_cuda_kernels()) GTEST_SKIP() << "this build has no CUDA kernels";
    if (device().is_cuda() && !at::hasCUDA()) GTEST_SKIP() << "no CUDA device on this machine";
  }
  static at::Device device() { return at::Device(GetParam()); }
  static at::Tensor there(const at::Tensor& t, at::ScalarType type = at::kDouble) {
    return t.to(device(), type);
  }
};

}  // namespace bnlab::test

#define INSTANTIATE_ON_EACH_DEVICE(Suite)                             \
  INSTANTIATE_TEST_SUITE_P(On, Suite, testing::Values("cpu", "cuda"), \
                           [](const auto& each) { return std::string(each.param); })
