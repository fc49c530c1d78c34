// Several ranks on one GPU: this tests the exchanges over NCCL on a machine with a single GPU. The speed of
// such ranks says nothing about as many GPUs. Needs no LibTorch.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

namespace bnlab {

// Whether the user allows it: NCCL 2.30 and later, with NCCL_MULTI_RANK_GPU_ENABLE=1.
inline bool gpus_are_shared() {
  const char* enabled = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return enabled != nullptr && std::string(enabled) == "1";
}

// Environment variables that such ranks need. The kernels of all ranks must be on the GPU at once, and no
// kernel may wait for code to be loaded while another one spins.
inline std::map<std::string, std::string> shared_gpu_settings() {
  return {{"CUDA_MODULE_LOADING", "EAGER"}, {"NCCL_MAX_CTAS", "4"}, {"NCCL_NVLS_ENABLE", "0"}};
}

}  // namespace bnlab
