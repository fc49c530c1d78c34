#include "harness/training/graph_recorder.hpp"

#ifdef USE_C10D_NCCL
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif

#include <array>
#include <exception>
#include <string>

#include "harness/error.hpp"

namespace bnlab {

#ifdef USE_C10D_NCCL
namespace {

class CudaRecorder : public GraphRecorder {
 public:
  // Other threads go on as usual meanwhile: the one that makes batches ahead takes pinned memory, and NCCL's watchdog
  // asks for events. (The allocator keeps apart what this stream takes, on whichever thread.)
  void record(Half half, const std::function<void()>& work) override {
    if (half == Half::forward) {
      c10::cuda::CUDACachingAllocator::emptyCache();  // a recording cannot use what is cached
    }
    at::cuda::CUDAGraph& graph = graphs_[static_cast<size_t>(half)];
    graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
      graph.capture_end();
    } catch (const c10::Error& error) {
      abandon(graph);
      throw not_recorded(error.what_without_backtrace());
    } catch (const std::exception& error) {
      abandon(graph);
      throw not_recorded(error.what());
    }
  }

  void replay(Half half) override { graphs_[static_cast<size_t>(half)].replay(); }

 private:
  static Error not_recorded(const std::string& why) {
    return Error(Error::Kind::environment,
                 "a training step could not be recorded: " + why.substr(0, why.find('\n')));
  }

  // Else the stream would go on recording, and the allocators would go on giving it memory of the pool.
  void abandon(at::cuda::CUDAGraph& graph) const {
    const c10::DeviceIndex device = c10::cuda::current_device();
    if (done([&] { graph.capture_end(); })) {
      return;
    }
    done([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool_); });
    done([&] { c10::cuda::CUDACachingAllocator::releasePool(device, pool_); });
    done([&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_); });
    done([&] { at::getHostAllocator(at::kCUDA)->release_pool(pool_); });
  }

  static bool done(const std::function<void()>& step) {
    try {
      step();
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }

  // One pool for both halves: backward reads what forward has kept. They are always replayed in this order.
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  std::array<at::cuda::CUDAGraph, 2> graphs_;
};

}  // namespace
#endif

NewRecorder recorders_of([[maybe_unused]] c10::Device device) {
#ifdef USE_C10D_NCCL
  if (device.is_cuda()) {
    return [] { return std::make_unique<CudaRecorder>(); };
  }
#endif
  return nullptr;
}

}  // namespace bnlab
