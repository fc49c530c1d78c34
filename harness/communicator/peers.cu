#include "harness/communicator/peers.hpp"

#include <ATen/Dispatch.h>

#ifdef __CUDACC__
#include <cuda/atomic>
#else
#include <sched.h>
#include <time.h>

#include <atomic>
#endif

#include "harness/support/launch.cuh"

namespace bnlab::peers {
namespace {

constexpr int kThreads = 512;

#ifdef __CUDACC__
template <class T>
using SystemWide = cuda::atomic_ref<T, cuda::thread_scope_system>;
constexpr auto kAcquire = cuda::memory_order_acquire;
constexpr auto kRelease = cuda::memory_order_release;
__device__ int64_t now_ns() {
  int64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}
__device__ void rest() {}
#else  // tests/simgpu
template <class T>
using SystemWide = std::atomic_ref<T>;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}
void rest() {
  sched_yield();
}
#endif

template <class Word>
__device__ void copy_words(std::byte* to, const std::byte* from, int64_t bytes) {
  const int64_t words = bytes / static_cast<int64_t>(sizeof(Word));
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x)
    reinterpret_cast<Word*>(to)[i] = reinterpret_cast<const Word*>(from)[i];
}

__device__ void copy(std::byte* to, const std::byte* from, int64_t bytes) {
  const uintptr_t all =
      reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | static_cast<uintptr_t>(bytes);
  if (all % 16 == 0)
    copy_words<int4>(to, from, bytes);
  else if (all % 8 == 0)
    copy_words<int64_t>(to, from, bytes);
  else if (all % 4 == 0)
    copy_words<int>(to, from, bytes);
  else
    copy_words<char>(to, from, bytes);
}

// Of this block's lane.
__device__ unsigned* flag_of(const Ranks& ranks, int owner, unsigned half, int sender) {
  return reinterpret_cast<unsigned*>(ranks.region[owner]) + (blockIdx.x * 2 + half) * kMostRanks + sender;
}
__device__ unsigned* epoch_of(const Ranks& ranks) {
  return reinterpret_cast<unsigned*>(ranks.region[ranks.rank] + kHeaderBytes / 2) + blockIdx.x;
}
__device__ std::byte* slot_of(const Ranks& ranks, int owner, unsigned half, int sender) {
  const int64_t slot = (static_cast<int64_t>(blockIdx.x) * 2 + half) * ranks.size + sender;
  return ranks.region[owner] + kHeaderBytes + slot * kSlotBytes;
}

// How many bytes of a share one slot takes from `offset` on.
__device__ int64_t piece_of(const Share& share, int64_t offset) {
  const int64_t left = share.bytes - offset;
  return left < 0 ? 0 : left < kSlotBytes ? left : kSlotBytes;
}

// The flag of this epoch, once `sender` has raised it.
__device__ unsigned awaited(const Ranks& ranks, unsigned epoch, unsigned half, int sender) {
  const SystemWide<unsigned> flag(*flag_of(ranks, ranks.rank, half, sender));
  const int64_t end = now_ns() + ranks.limit_ns;
  for (;;) {
    const unsigned seen = flag.load(kAcquire);
    if (seen / 2 == epoch % (1u << 31)) return seen;
    if (now_ns() > end) break;
    rest();
  }
  SystemWide<unsigned>(*ranks.missing).store(1 + static_cast<unsigned>(sender), kRelease);
  __threadfence_system();
  __trap();
  return 0;
}

// Calls receive(offset, half) once the pieces that begin at `offset` are in this rank's slots. A flag is twice
// the epoch, plus one where its sender has more for somebody: the lane goes on until nobody has.
template <class Receive>
__device__ void in_epochs(const Ranks& ranks, const Call& call, const Receive& receive) {
  __shared__ bool goes_on;
  const int t = static_cast<int>(threadIdx.x);
  const int64_t stride = gridDim.x * kSlotBytes;
  unsigned epoch = *epoch_of(ranks);
  for (int64_t offset = blockIdx.x * kSlotBytes;; offset += stride) {
    ++epoch;
    const unsigned half = epoch % 2;
    bool more = false;
    for (int r = 0; r < ranks.size; ++r) {
      more = more || call.sent[r].bytes > offset + stride;
      if (r != ranks.rank)
        copy(slot_of(ranks, r, half, ranks.rank), call.from + call.sent[r].begin + offset,
             piece_of(call.sent[r], offset));
    }
    if (t == 0) goes_on = more;
    __syncthreads();  // all is written before a flag says so
    if (t < ranks.size && t != ranks.rank) {
      SystemWide<unsigned>(*flag_of(ranks, t, half, ranks.rank)).store(epoch * 2 + more, kRelease);
      if (awaited(ranks, epoch, half, t) % 2 == 1) goes_on = true;
    }
    __syncthreads();
    receive(offset, half);
    more = goes_on;
    __syncthreads();  // all have seen whether it goes on
    if (!more) break;
  }
  if (t == 0) *epoch_of(ranks) = epoch;
}

__global__ void __launch_bounds__(kThreads)
    exchange_kernel(const __grid_constant__ Ranks ranks, const __grid_constant__ Call call) {
  in_epochs(ranks, call, [&](int64_t offset, unsigned half) {
    for (int r = 0; r < ranks.size; ++r) {
      const std::byte* const own = call.from + call.sent[r].begin + offset;
      copy(call.to + call.received[r].begin + offset,
           r == ranks.rank ? own : slot_of(ranks, ranks.rank, half, r), piece_of(call.received[r], offset));
    }
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    exchange_sum_kernel(const __grid_constant__ Ranks ranks, const __grid_constant__ Call call) {
  in_epochs(ranks, call, [&](int64_t offset, unsigned half) {
    const Share& share = call.received[ranks.rank];
    const int64_t elements = piece_of(share, offset) / static_cast<int64_t>(sizeof(T));
    const auto* const own = reinterpret_cast<const T*>(call.from + offset);
    auto* const sum = reinterpret_cast<T*>(call.to + offset);
    for (int64_t i = threadIdx.x; i < elements; i += blockDim.x) {
      T total{};
      for (int r = 0; r < ranks.size; ++r) {
        const T value =
            r == ranks.rank ? own[i] : reinterpret_cast<const T*>(slot_of(ranks, ranks.rank, half, r))[i];
        total = r == 0 ? value : static_cast<T>(total + value);
      }
      sum[i] = total;
    }
  });
}

}  // namespace

void exchange(const Ranks& ranks, const Call& call, int lanes) {
  launch(exchange_kernel, dim3(static_cast<unsigned>(lanes)), dim3(kThreads), ranks, call);
}

void exchange_sum(const Ranks& ranks, const Call& call, int lanes, at::ScalarType type) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, type, "sum over ranks", [&] {
    launch(exchange_sum_kernel<scalar_t>, dim3(static_cast<unsigned>(lanes)), dim3(kThreads), ranks, call);
  });
}

}  // namespace bnlab::peers
