// Several ranks on one GPU, by which the way over NCCL is tried out where there is one GPU alone. Their speed is not
// that of as many GPUs. Needs no LibTorch.
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

// Variables that such ranks need: the kernels of all of them must be on the GPU at once, and none may wait for code to
// be loaded while another one's kernel spins.
inline std::map<std::string, std::string> shared_gpu_settings() {
  return {{"CUDA_MODULE_LOADING", "EAGER"}, {"NCCL_MAX_CTAS", "4"}, {"NCCL_NVLS_ENABLE", "0"}};
}

}  // namespace bnlab
