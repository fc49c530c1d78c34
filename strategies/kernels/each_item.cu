// The steps of finish.hpp and sample_finish.hpp on a GPU: one thread per item, one launch each, on the current stream.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include "strategies/kernels/finish_channel.hpp"
#include "strategies/kernels/launch.cuh"
#include "strategies/kernels/sample_group.hpp"

namespace bnlab::kernels::cuda {
namespace {

constexpr int64_t kThreads = 128;

template <class Body>
__global__ void every_item(Body body, int64_t items) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < items) {
    body(i);
  }
}

}  // namespace

template <class Body>
void each_item(const Body& body, int64_t items, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto blocks = static_cast<unsigned>((items + kThreads - 1) / kThreads);
  launch(every_item<Body>, dim3(blocks), dim3(kThreads), body, items);
}

template void each_item(const MergeMoments<float>&, int64_t, at::Device);
template void each_item(const MergeMoments<double>&, int64_t, at::Device);
template void each_item(const SumMoments&, int64_t, at::Device);
template void each_item(const SumTowers<float>&, int64_t, at::Device);
template void each_item(const SumTowers<double>&, int64_t, at::Device);
template void each_item(const FinishSaved<float>&, int64_t, at::Device);
template void each_item(const FinishSaved<double>&, int64_t, at::Device);
template void each_item(const FinishForward<float>&, int64_t, at::Device);
template void each_item(const FinishForward<double>&, int64_t, at::Device);
template void each_item(const FinishBackward<float>&, int64_t, at::Device);
template void each_item(const FinishBackward<double>&, int64_t, at::Device);
template void each_item(const PooledForwardSteps<float>&, int64_t, at::Device);
template void each_item(const PooledForwardSteps<double>&, int64_t, at::Device);
template void each_item(const UpdatePair<float>&, int64_t, at::Device);
template void each_item(const UpdatePair<double>&, int64_t, at::Device);
template void each_item(const SampleForward<float>&, int64_t, at::Device);
template void each_item(const SampleForward<double>&, int64_t, at::Device);
template void each_item(const SampleBackward<float>&, int64_t, at::Device);
template void each_item(const SampleBackward<double>&, int64_t, at::Device);

}  // namespace bnlab::kernels::cuda
