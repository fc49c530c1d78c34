// The steps of finish.hpp on a GPU: one thread per channel, one launch each, on the current stream.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include "strategies/kernels/finish_channel.hpp"
#include "strategies/kernels/launch.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int64_t kThreads = 128;

template <class Body>
__global__ void every_channel(Body body, int64_t channels) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c < channels) {
    body(c);
  }
}

}  // namespace

template <class Body>
void each_channel(const Body& body, int64_t channels, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto blocks = static_cast<unsigned>((channels + kThreads - 1) / kThreads);
  launch(every_channel<Body>, dim3(blocks), dim3(kThreads), body, channels);
}

template void each_channel(const MergeMoments<float>&, int64_t, at::Device);
template void each_channel(const MergeMoments<double>&, int64_t, at::Device);
template void each_channel(const FinishForward<float>&, int64_t, at::Device);
template void each_channel(const FinishForward<double>&, int64_t, at::Device);
template void each_channel(const FinishBackward<float>&, int64_t, at::Device);
template void each_channel(const FinishBackward<double>&, int64_t, at::Device);
template void each_channel(const PooledForwardSteps<float>&, int64_t, at::Device);
template void each_channel(const PooledForwardSteps<double>&, int64_t, at::Device);
template void each_channel(const UpdatePair<float>&, int64_t, at::Device);
template void each_channel(const UpdatePair<double>&, int64_t, at::Device);

}  // namespace bnlab::kernels::cuda
