// The steps of coefficients.hpp on a GPU: one thread per item, one launch each, on the current stream.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include "strategies/kernels/channel.hpp"
#include "strategies/kernels/launch.cuh"

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

template void each_item(const channel::MergeMoments<float>&, int64_t, at::Device);
template void each_item(const channel::MergeMoments<double>&, int64_t, at::Device);
template void each_item(const channel::SumMoments&, int64_t, at::Device);
template void each_item(const channel::SumTowers<float>&, int64_t, at::Device);
template void each_item(const channel::SumTowers<double>&, int64_t, at::Device);
template void each_item(const channel::Forward<float>&, int64_t, at::Device);
template void each_item(const channel::Forward<double>&, int64_t, at::Device);
template void each_item(const channel::RunningForward<float>&, int64_t, at::Device);
template void each_item(const channel::RunningForward<double>&, int64_t, at::Device);
template void each_item(const channel::Backward<float>&, int64_t, at::Device);
template void each_item(const channel::Backward<double>&, int64_t, at::Device);
template void each_item(const channel::UpdateRunning<float>&, int64_t, at::Device);
template void each_item(const channel::UpdateRunning<double>&, int64_t, at::Device);
template void each_item(const channel::PooledForward<float>&, int64_t, at::Device);
template void each_item(const channel::PooledForward<double>&, int64_t, at::Device);
template void each_item(const channel::SampleForward<float>&, int64_t, at::Device);
template void each_item(const channel::SampleForward<double>&, int64_t, at::Device);
template void each_item(const channel::SampleBackward<float>&, int64_t, at::Device);
template void each_item(const channel::SampleBackward<double>&, int64_t, at::Device);

}  // namespace bnlab::kernels::cuda
