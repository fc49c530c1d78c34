// The steps of kernels.hpp on a GPU: one thread per item, or several where an item goes over many rows,
// one launch each, on the current stream.
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAGuard.h>

#include <type_traits>

#include "harness/communicator/peers.cuh"
#include "strategies/kernels/each_item.hpp"
#include "strategies/kernels/launch.cuh"
#include "strategies/kernels/moving_average.hpp"
#include "strategies/kernels/sample_channel.hpp"

namespace bnlab::kernels::cuda {
namespace {

constexpr int64_t kThreads = peers::kChannelsOfBlock;
constexpr int kLanes = 16, kItems = 16;  // of a block: threads of an item, neighbouring items

template <class Body>
__global__ void every_item(Body body, int64_t items) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < items) body(i);
}

// This block's columns, from all ranks.
template <class T>
__device__ void gather_columns(const peers::Gather& gather) {
  const int64_t first = blockIdx.x * kThreads, columns = gather.columns();
  const int64_t left = gather.channels - first, width = left < kThreads ? left : kThreads;
  const int64_t of_row = gather.head + gather.parts * width, all = gather.rows * of_row;
  const T* const own = static_cast<const T*>(gather.from);
  const auto place = [&](int64_t i) {
    const int64_t row = i / of_row, k = i % of_row - gather.head;
    return row * columns +
           (k < 0 ? i % of_row : gather.head + k / width * gather.channels + first + k % width);
  };
  peers::in_epochs(
      gather.ranks,
      [&](int64_t, unsigned half) {
        for (int64_t i = threadIdx.x; i < all; i += kThreads)
          for (int r = 0; r < gather.ranks.size; ++r)
            if (r != gather.ranks.rank)
              reinterpret_cast<T*>(peers::slot_of(gather.ranks, r, half, gather.ranks.rank))[i] =
                  own[place(i)];
        return false;
      },
      [&](int64_t, unsigned half) {
        for (int r = 0; r < gather.ranks.size; ++r) {
          T* const to = static_cast<T*>(gather.to) + r * gather.rows * columns;
          const T* const from =
              reinterpret_cast<const T*>(peers::slot_of(gather.ranks, gather.ranks.rank, half, r));
          for (int64_t i = threadIdx.x; i < all; i += kThreads)
            to[place(i)] = r == gather.ranks.rank ? own[place(i)] : from[i];
        }
      });
}

template <class T, class Body>
__global__ void every_item_of(const __grid_constant__ peers::Gather gather, Body body) {
  gather_columns<T>(gather);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < gather.channels) body(i);
}

// The threads (channel.hpp) that share an item of a block. Those beyond the last item take no row.
class Together {
 public:
  __device__ explicit Together(bool inside) : lane_(inside ? threadIdx.y : kNone) {}
  __device__ int64_t lane() const { return lane_; }
  __device__ int64_t lanes() const { return kLanes; }
  __device__ void wait() const { __syncthreads(); }
  template <class T>
  __device__ T sum(T value) const {
    __shared__ T values[kLanes][kItems];
    values[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    T total = values[0][threadIdx.x];
    for (int lane = 1; lane < kLanes; ++lane) total += values[lane][threadIdx.x];
    __syncthreads();  // the next call writes
    return total;
  }

 private:
  static constexpr int64_t kNone = int64_t{1} << 40;  // more than there are rows
  int64_t lane_;
};

template <class Body>
__global__ void every_item_together(Body body, int64_t items) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kItems + threadIdx.x;
  body(i, Together(i < items));
}

// The threads that share a group of channels (sample_channel.hpp): a row of the block, a power of two of
// them.
class Row {
 public:
  __device__ explicit Row(bool inside) : lane_(inside ? threadIdx.x : kNone) {}
  __device__ int64_t lane() const { return lane_; }
  __device__ int64_t lanes() const { return blockDim.x; }
  __device__ double sum(double value) const {
    __shared__ double values[kThreads];
    double* own = values + threadIdx.y * blockDim.x;
    own[threadIdx.x] = value;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
      if (threadIdx.x < half) own[threadIdx.x] += own[threadIdx.x + half];
      __syncthreads();
    }
    const double total = own[0];
    __syncthreads();  // the next call writes
    return total;
  }

 private:
  static constexpr int64_t kNone = int64_t{1} << 40;  // more than there are channels
  int64_t lane_;
};

template <class Body>
__global__ void every_group(Body body, int64_t items) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool inside = i < items;
  body(inside ? i : 0, Row(inside));
}

template <class Body>
concept HasGroups = requires(const Body& body) { body.group_size(); };

template <class Body>
constexpr bool kShares = std::is_invocable_v<const Body&, int64_t, const Together&>;

}  // namespace

template <class Body>
void each_item(const Body& body, int64_t items, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  if constexpr (HasGroups<Body>) {
    unsigned lanes = 1;
    while (lanes < kThreads && lanes < body.group_size()) lanes *= 2;
    const unsigned rows = static_cast<unsigned>(kThreads) / lanes;
    items = body.items(lanes);
    launch(every_group<Body>, dim3(static_cast<unsigned>((items + rows - 1) / rows)), dim3(lanes, rows), body,
           items);
    return;
  } else if constexpr (kShares<Body>) {
    if (body.rows() >= kManyRows) {
      const auto blocks = static_cast<unsigned>((items + kItems - 1) / kItems);
      launch(every_item_together<Body>, dim3(blocks), dim3(kItems, kLanes), body, items);
      return;
    }
  }
  const auto blocks = static_cast<unsigned>((items + kThreads - 1) / kThreads);
  launch(every_item<Body>, dim3(blocks), dim3(kThreads), body, items);
}

template <class T, class Body>
void each_item_of(const peers::Gather& gather, const Body& body, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  const auto blocks = static_cast<unsigned>((gather.channels + kThreads - 1) / kThreads);
  launch(every_item_of<T, Body>, dim3(blocks), dim3(kThreads), gather, body);
}

template void each_item_of<double>(const peers::Gather&, const channel::PooledForward<float>&, at::Device);
template void each_item_of<double>(const peers::Gather&, const channel::PooledForward<double>&, at::Device);
template void each_item_of<float>(const peers::Gather&, const channel::Backward<float>&, at::Device);
template void each_item_of<double>(const peers::Gather&, const channel::Backward<double>&, at::Device);

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
template void each_item(const channel::MovingForward<float>&, int64_t, at::Device);
template void each_item(const channel::MovingForward<double>&, int64_t, at::Device);
template void each_item(const channel::MovingBackward<float>&, int64_t, at::Device);
template void each_item(const channel::MovingBackward<double>&, int64_t, at::Device);
template void each_item(const channel::CentreFilters<float>&, int64_t, at::Device);
template void each_item(const channel::CentreFilters<double>&, int64_t, at::Device);

}  // namespace bnlab::kernels::cuda
