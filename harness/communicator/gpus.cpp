#include "harness/communicator/gpus.hpp"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "harness/strategy.hpp"

namespace bnlab {

int visible_gpus() {
#ifdef USE_C10D_NCCL
  return has_cuda_kernels() ? static_cast<int>(c10::cuda::device_count()) : 0;
#else
  return 0;
#endif
}

std::vector<std::string> names_of_gpus() {
  std::vector<std::string> names;
#ifdef USE_C10D_NCCL
  // Slices of one GPU may have its UUID; the variable then names them.
  std::istringstream visible(
      std::getenv("CUDA_VISIBLE_DEVICES") != nullptr ? std::getenv("CUDA_VISIBLE_DEVICES") : "");
  for (int i = 0; i < visible_gpus(); ++i) {
    cudaDeviceProp properties{};
    std::string entry;
    std::getline(visible, entry, ',');
    std::ostringstream name;
    if (entry.starts_with("MIG-")) {
      name << entry;
    } else if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
      for (const char byte : properties.uuid.bytes) {
        name << std::hex << std::setw(2) << std::setfill('0')
             << static_cast<int>(static_cast<unsigned char>(byte));
      }
    }
    names.push_back(name.str().empty() ? "GPU " + std::to_string(i) : name.str());
  }
#endif
  return names;
}

}  // namespace bnlab
