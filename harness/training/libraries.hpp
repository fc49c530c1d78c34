// The libraries that ranks of this process compute with. Needs no LibTorch to include.
#pragma once

#include "harness/support/json.hpp"

namespace bnlab {

// Whether cuDNN times its algorithms on the first batch of each shape and takes the fastest, but for runs
// that are deterministic. Runs may then differ in their rounding, which the record therefore says.
constexpr bool kCudnnBenchmark = true;

// For the environment record: {"libtorch": "2.11.0", "cuda", "nccl", "cudnn_benchmark": kCudnnBenchmark,
// "gpus": their names, "cpu_capability": "AVX512" (LibTorch's), "cpu_kernels": "avx512" (bnlab's)}; null for
// what is absent.
Json library_versions();

// Whether the program holds its CUDA kernels.
bool built_with_cuda();
inline constexpr const char* kBuildWithCuda = "BNLAB_CUDA=on scripts/build.sh release bnlab";

}  // namespace bnlab
