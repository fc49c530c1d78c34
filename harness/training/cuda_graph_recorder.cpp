#include "harness/training/graph_recorder.hpp"

#ifdef USE_C10D_NCCL
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

#include <array>
#include <exception>

#include "harness/communicator/reason.hpp"
#include "harness/support/error.hpp"

namespace bnlab {

#ifdef USE_C10D_NCCL
namespace {

// CUDA's words for a recording that broke off do not say by whose doing.
std::string explained(const std::string& reason) {
  const bool broke_off =
      reason.find(cudaGetErrorString(cudaErrorStreamCaptureInvalidated)) != std::string::npos;
  return broke_off ? reason + " (another thread may have waited for the GPU or freed memory there meanwhile)"
                   : reason;
}

class CudaRecorder : public GraphRecorder {
 public:
  // The capture is this thread's alone, so that other threads go on as usual: the thread that makes batches
  // ahead takes pinned memory, and NCCL's watchdog queries events. (The allocator keeps apart what this
  // stream takes, on any thread.)
  void record(StepPart part, const std::function<void()>& work) override {
    at::cuda::CUDAGraph& graph = graphs_[static_cast<size_t>(part)];
    // A recording cannot use what is cached, which matters for activations. To give it back waits for the
    // whole GPU: ranks that are threads and share one, as in tests, must not record, since one would wait for
    // the other's exchange.
    if (part == StepPart::forward) c10::cuda::CUDACachingAllocator::emptyCache();
    try {
      graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      work();
      graph.capture_end();
    } catch (const std::exception& error) {
      abandon(graph);
      throw Error(Error::Kind::environment,
                  "a training step could not be recorded: " + explained(reason_of(error)));
    }
  }

  void replay(StepPart part) override { graphs_[static_cast<size_t>(part)].replay(); }

 private:
  // The stream stops recording, and the allocators stop giving it memory of the pool. A graph whose recording
  // has ended gives the pool back when it is destroyed. For a graph whose recording has not ended, the pool
  // is given back here.
  void abandon(at::cuda::CUDAGraph& graph) const {
    done([&] { graph.capture_end(); });
    if (done([&] { graph.pool(); }))  // refused until the recording has ended
      return;
    const c10::DeviceIndex device = c10::cuda::current_device();
    if (done([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool_); }))
      done([&] { c10::cuda::CUDACachingAllocator::releasePool(device, pool_); });
    if (done([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_); }))
      done([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool_); });
  }

  static bool done(const std::function<void()>& step) {
    try {
      step();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  // One pool for all parts: backward reads what forward has kept. They are always replayed in this order.
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::array<at::cuda::CUDAGraph, 3> graphs_;
};

}  // namespace
#endif

MakeRecorder recorders_of([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) return [] { return std::make_unique<CudaRecorder>(); };
#endif
  return nullptr;
}

}  // namespace bnlab
