#include "harness/training/libraries.hpp"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include "harness/communicator/gpus.hpp"
#include "harness/communicator/nccl.hpp"
#include "harness/strategy.hpp"
#include "harness/support/cpu_kernels.hpp"

namespace bnlab {

bool built_with_cuda() {
  return has_cuda_kernels();
}

Json library_versions() {
  return {{"libtorch", TORCH_VERSION},
          {"cuda", or_null(cuda_version())},
          {"nccl", or_null(nccl_version())},
          {"cudnn_benchmark", cuda_version().empty() ? Json() : Json(kCudnnBenchmark)},
          {"gpus", models_of_gpus()},
          {"cpu_capability", at::get_cpu_capability()},
          {"cpu_kernels", CpuKernels::level()}};
}

}  // namespace bnlab
