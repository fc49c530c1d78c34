// How every kernel is launched: on the current stream, and checked. Where there is no GPU, tests put
// another header in the place of this one.
#pragma once

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace bnlab::kernels::cuda {

constexpr int kBlockThreads = 256;         // of the sweeps
constexpr int kMaxSlices = 256;            // of theirs in one launch
constexpr int64_t kMinimumTickets = 4096;  // allocated at once (sweep.cu); few launches need more
constexpr int64_t kSmallBytes = 16 << 20;  // below, a sum takes no longer than to merge its parts

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, const Arguments&... arguments) {
  kernel<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(arguments...);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace bnlab::kernels::cuda
