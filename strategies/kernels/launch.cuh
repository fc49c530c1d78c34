// What the launches of all kernels have in common. Where there is no GPU, tests put another header in the
// place of this one.
#pragma once

#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <cstdint>

#include "harness/support/launch.cuh"

namespace bnlab::kernels::cuda {

using bnlab::launch;

constexpr int kBlockThreads = 256;         // of the sweeps
constexpr int kMaxSlices = 256;            // of theirs in one launch
constexpr int64_t kMinimumTickets = 4096;  // allocated at once (sweep.cu); few launches need more
constexpr int64_t kSmallBytes = 16 << 20;  // below, a sum takes no longer than to merge its parts

// Whether the current stream records a graph.
inline bool capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace bnlab::kernels::cuda
