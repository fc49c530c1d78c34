#include "harness/training/graph_recorder.hpp"

#ifdef USE_C10D_NCCL
#include <ATen/cuda/CUDAGraph.h>
#endif

#include <array>
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
    at::cuda::CUDAGraph& graph = graphs_[static_cast<size_t>(half)];
    graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
      graph.capture_end();
    } catch (const c10::OutOfMemoryError&) {
      abandon(graph);
      throw;
    } catch (const c10::Error& error) {
      abandon(graph);
      throw Error(
          Error::Kind::environment,
          std::string("cuda_graph: this training step cannot be recorded; set cuda_graph to false: ") +
              error.what_without_backtrace());
    }
  }

  void replay(Half half) override { graphs_[static_cast<size_t>(half)].replay(); }

 private:
  // Else the stream would go on recording.
  static void abandon(at::cuda::CUDAGraph& graph) {
    try {
      graph.capture_end();
    } catch (const c10::Error&) {  // the recording was void already
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
