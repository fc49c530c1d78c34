#include "harness/training/libraries.hpp"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <torch/version.h>
#ifdef USE_C10D_NCCL
#include <cuda_runtime_api.h>
#endif

#include <string>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/world.hpp"
#include "harness/cpu_kernels.hpp"
#include "harness/strategy.hpp"

namespace bnlab {

bool built_with_cuda() {
  return has_cuda_kernels();
}

Json library_versions() {
  Json versions = {{"libtorch", TORCH_VERSION},
                   {"cuda", nullptr},
                   {"nccl", nullptr},
                   {"cudnn_benchmark", nullptr},
                   {"gpus", Json::array()},
                   {"cpu_capability", at::get_cpu_capability()},
                   {"cpu_kernels", CpuKernels::level()}};
#ifdef USE_C10D_NCCL
  versions["cuda"] = std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  versions["nccl"] = nccl_version();
  versions["cudnn_benchmark"] = kCudnnBenchmark;
  for (int i = 0; i < visible_gpus(); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) versions["gpus"].push_back(properties.name);
  }
#endif
  return versions;
}

}  // namespace bnlab
