// The steps of kernels.hpp on a GPU: one thread per item, or several where an item goes over many rows,
// one launch each, on the current stream.
#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>

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

template <class Body>
concept HasGroups = requires(const Body& body) { body.group_size(); };

// The threads of a block that share an item (channel.hpp), a power of two of them.
class Team {
 public:
  __device__ Team(bool inside, unsigned lane, unsigned lanes, unsigned item)
      : lane_(inside ? lane : channel::kNoLane), lanes_(lanes), first_(item * lanes), own_(first_ + lane) {}
  __device__ int64_t lane() const { return lane_; }
  __device__ int64_t lanes() const { return lanes_; }
  __device__ void wait() const { __syncthreads(); }
  template <class T>
  __device__ T sum(T value) const {
    __shared__ T values[kLanes * kItems];
    values[own_] = value;
    __syncthreads();
    for (unsigned half = lanes_ / 2; half > 0; half /= 2) {
      if (own_ < first_ + half) values[own_] += values[own_ + half];
      __syncthreads();
    }
    const T total = values[first_];
    __syncthreads();  // the next call writes
    return total;
  }

 private:
  int64_t lane_;
  unsigned lanes_, first_, own_;
};

// The rows of an item lie far apart, and those of neighbouring items side by side; the channels of a group
// lie side by side.
template <class Body>
__global__ void every_team(Body body, int64_t items) {
  const auto call = [&](unsigned lane, unsigned lanes, unsigned item, unsigned at_once) {
    const int64_t i = int64_t{blockIdx.x} * at_once + item;
    body(i < items ? i : 0, Team(i < items, lane, lanes, item));
  };
  if constexpr (HasGroups<Body>)
    call(threadIdx.x, blockDim.x, threadIdx.y, blockDim.y);
  else
    call(threadIdx.y, blockDim.y, threadIdx.x, blockDim.x);
}

template <class Body>
constexpr bool kShares = std::is_invocable_v<const Body&, int64_t, const Team&>;

}  // namespace

template <class Body>
void each_item(const Body& body, int64_t items, at::Device device) {
  const c10::DeviceGuard guard(device);
  const auto blocks = [&](int64_t at_once) {
    return dim3(static_cast<unsigned>((items + at_once - 1) / at_once));
  };
  if constexpr (HasGroups<Body>) {
    unsigned lanes = 1;
    while (lanes < kThreads && lanes < body.group_size()) lanes *= 2;
    const unsigned rows = static_cast<unsigned>(kThreads) / lanes;
    items = body.items(lanes);
    launch(every_team<Body>, blocks(rows), dim3(lanes, rows), body, items);
    return;
  } else if constexpr (kShares<Body>) {
    if (body.rows() >= kManyRows) {
      launch(every_team<Body>, blocks(kItems), dim3(kItems, kLanes), body, items);
      return;
    }
  }
  launch(every_item<Body>, blocks(kThreads), dim3(kThreads), body, items);
}

template <class T, class Body>
void each_item_of(const peers::Gather& gather, const Body& body, at::Device device) {
  const c10::DeviceGuard guard(device);
  const auto blocks = static_cast<unsigned>((gather.channels + kThreads - 1) / kThreads);
  launch(every_item_of<T, Body>, dim3(blocks), dim3(kThreads), gather, body);
}

template void each_item_of<double>(const peers::Gather&, const channel::PooledForward<float>&, at::Device);
template void each_item_of<double>(const peers::Gather&, const channel::PooledForward<double>&, at::Device);
template void each_item_of<float>(const peers::Gather&, const channel::Backward<float>&, at::Device);
template void each_item_of<double>(const peers::Gather&, const channel::Backward<double>&, at::Device);

#define BNLAB_STEP(Body)                                                     \
  template void each_item(const channel::Body<float>&, int64_t, at::Device); \
  template void each_item(const channel::Body<double>&, int64_t, at::Device)
template void each_item(const channel::SumMoments&, int64_t, at::Device);
BNLAB_STEP(MergeMoments);
BNLAB_STEP(SumTowers);
BNLAB_STEP(Forward);
BNLAB_STEP(RunningForward);
BNLAB_STEP(Backward);
BNLAB_STEP(UpdateRunning);
BNLAB_STEP(PooledForward);
BNLAB_STEP(SampleForward);
BNLAB_STEP(SampleBackward);
BNLAB_STEP(MovingForward);
BNLAB_STEP(MovingBackward);
BNLAB_STEP(CentreFilters);

}  // namespace bnlab::kernels::cuda
