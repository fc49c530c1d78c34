// How finely the sweeps are cut (sweep.cuh).
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <map>
#include <utility>

#include "strategies/kernels/sweep.cuh"

namespace bnlab::kernels::cuda {
namespace {

constexpr int64_t kMinimumSteps = 4;     // of a thread, before another block is worth it
constexpr int64_t kMaximumSteps = 1024;  // of a thread, since it sums in float32
constexpr int64_t kMergedAtOnce = 64;    // parts of 32 channels, whose last block loads them all at once

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The smallest power of two that is at least n, but at most `limit`, a power of two.
int64_t power_of_two(int64_t n, int64_t limit) {
  int64_t p = 1;
  while (p < n && p < limit) p *= 2;
  return p;
}

}  // namespace

Launches plan_launches(const Layout& layout, const Offsets& offsets, int vector, const Limits& limits) {
  Launches plan;
  const int64_t slices = static_cast<int64_t>(offsets.size()) - 1;
  const int64_t at_once = std::min<int64_t>(slices, kMaxSlices);
  int64_t rows = 0;  // of the longest slice
  for (int64_t s = 0; s < slices; ++s) rows = std::max(rows, offsets[s + 1] - offsets[s]);
  int64_t width, tiles, steps;
  if (layout.channels_last) {
    const int64_t across = ceil_divide(layout.channels, vector);
    width = power_of_two(across, limits.width);
    tiles = ceil_divide(across, width);
    steps = ceil_divide(rows * layout.plane, kThreads / width);
  } else {  // at least a warp for a channel, and more where channels are few and their planes long
    const int64_t places = rows * ceil_divide(layout.plane, vector);
    const auto of_width = [&](int64_t w) { return ceil_divide(layout.channels, kThreads / w); };
    width = kThreads;
    while (width > 32 && (of_width(width) * at_once > limits.blocks || places < width * kMinimumSteps))
      width /= 2;
    tiles = of_width(width);
    steps = ceil_divide(places, width);
  }
  const int64_t to_fill = std::min(limits.blocks / (tiles * at_once), limits.parts);
  const int64_t wanted =
      std::clamp<int64_t>(std::max(to_fill, ceil_divide(steps, kMaximumSteps)), 1, kMaximumParts);
  const int64_t parts = std::clamp<int64_t>(ceil_divide(steps, kMinimumSteps), 1, wanted);
  TORCH_CHECK(tiles <= 0x7fffffff, "kernels: too many channels for one launch: ", layout.channels);
  plan.grid = dim3(static_cast<unsigned>(tiles), static_cast<unsigned>(parts), 1);
  plan.block = dim3(static_cast<unsigned>(width), static_cast<unsigned>(kThreads / width), 1);
  for (int64_t first = 0; first < slices; first += kMaxSlices) {
    const int64_t count = std::min<int64_t>(kMaxSlices, slices - first);
    Cut cut{};
    cut.channels = layout.channels;
    cut.plane = layout.plane;
    cut.first_slice = first;
    std::copy_n(offsets.begin() + first, count + 1, cut.offset);
    plan.cuts.push_back(cut);
    plan.slices.push_back(static_cast<unsigned>(count));
  }
  return plan;
}

Limits one_wave(const Layout& layout, int vector, int64_t element_bytes) {
  int device = 0, processors = 0;
  C10_CUDA_CHECK(cudaGetDevice(&device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  const bool small = layout.rows * layout.channels * layout.plane * element_bytes < kSmallBytes;
  const int64_t tile = small || element_bytes > 2 ? 32 : kMaxTile;  // 128 bytes, or 64 of a small tensor
  Limits limits;
  limits.width = std::min<int64_t>(32, tile / vector);
  limits.blocks = int64_t{kBlocksPerProcessor} * processors;
  limits.parts = 256;
  if (small && layout.channels_last) {
    const int64_t to_fill = processors / ceil_divide(layout.channels, tile);
    limits.parts = std::clamp<int64_t>(to_fill / kMergedAtOnce * kMergedAtOnce, kMergedAtOnce, 256);
  }
  return limits;
}

unsigned* tickets(int64_t count, const at::TensorOptions& options) {
  thread_local auto& of_stream =
      *new std::map<std::pair<int64_t, int64_t>, std::vector<at::Tensor>>;  // CUDA may end before the thread
  const auto stream = c10::cuda::getCurrentCUDAStream();
  // Those that were too few stay: graphs may hold launches that count on them.
  std::vector<at::Tensor>& all = of_stream[{stream.device_index(), stream.id()}];
  if (all.empty() || all.back().numel() < count) {
    // What is recorded is not done: a recording that breaks off would leave them as they were.
    TORCH_CHECK(!capturing(), "kernels: a step by itself has to come before a recording");
    all.push_back(empty_tensor({std::max<int64_t>(kMinimumTickets, count)}, options.dtype(at::kInt)));
    all.back().zero_();
  }
  return reinterpret_cast<unsigned*>(all.back().data_ptr<int>());
}

}  // namespace bnlab::kernels::cuda
