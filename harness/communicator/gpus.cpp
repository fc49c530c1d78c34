#include "harness/communicator/gpus.hpp"

#ifdef USE_C10D_NCCL
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#endif

#include <cstdlib>
#include <iomanip>
#include <sstream>

#include "harness/support/error.hpp"

namespace bnlab {

int visible_gpus() {
#ifdef USE_C10D_NCCL
  return static_cast<int>(c10::cuda::device_count());
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

std::vector<std::string> models_of_gpus() {
  std::vector<std::string> models;
#ifdef USE_C10D_NCCL
  for (int i = 0; i < visible_gpus(); ++i) {
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) models.emplace_back(properties.name);
  }
#endif
  return models;
}

std::vector<std::vector<int>> peers_of_gpus() {
  std::vector<std::vector<int>> peers(static_cast<size_t>(visible_gpus()));
#ifdef USE_C10D_NCCL
  for (int gpu = 0; gpu < visible_gpus(); ++gpu) {
    for (int other = 0; other < visible_gpus(); ++other) {
      int reaches = 0;
      if (other != gpu && cudaDeviceCanAccessPeer(&reaches, gpu, other) == cudaSuccess && reaches == 1)
        peers[static_cast<size_t>(gpu)].push_back(other);
    }
  }
#endif
  return peers;
}

std::string cuda_version() {
#ifdef USE_C10D_NCCL
  return std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
#else
  return "";
#endif
}

void take_gpu([[maybe_unused]] int gpu, [[maybe_unused]] int rank) {
#ifdef USE_C10D_NCCL
  if (visible_gpus() <= gpu) {
    throw Error(Error::Kind::environment,
                "rank " + std::to_string(rank) + " needs GPU " + std::to_string(gpu) + ", but " +
                    std::to_string(visible_gpus()) + " are visible; use fewer ranks or --device cpu");
  }
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(gpu));
#else
  throw Error(Error::Kind::environment, "this build has no CUDA; run with --device cpu");
#endif
}

void reset_peak_memory_of_gpu([[maybe_unused]] int gpu) {
#ifdef USE_C10D_NCCL
  if (c10::cuda::CUDACachingAllocator::get()->initialized())  // else nothing has been allocated yet
    c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(gpu));
#endif
}

int64_t peak_memory_bytes_of_gpu([[maybe_unused]] int gpu) {
#ifdef USE_C10D_NCCL
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)].peak;
#else
  return 0;
#endif
}

}  // namespace bnlab
