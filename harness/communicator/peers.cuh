// What a block of a kernel does to exchange with the other ranks (peers.hpp).
#pragma once

#include <cuda_runtime.h>

#ifdef __CUDACC__
#include <cuda/atomic>
#else
#include <sched.h>
#include <time.h>

#include <atomic>
#endif

#include "harness/communicator/peers.hpp"

namespace bnlab::peers {
namespace {

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

// One epoch after the other: send(round, half) writes into slots of the others and says whether this rank
// has more for somebody; receive(round, half) finds what came from them in its own. A flag is twice the
// epoch, plus one where its sender has more: the lane goes on until nobody has.
template <class Send, class Receive>
__device__ void in_epochs(const Ranks& ranks, const Send& send, const Receive& receive) {
  __shared__ bool goes_on;
  const int t = static_cast<int>(threadIdx.x);
  unsigned epoch = *epoch_of(ranks);
  for (int64_t round = 0;; ++round) {
    ++epoch;
    const unsigned half = epoch % 2;
    bool more = send(round, half);
    if (t == 0) goes_on = more;
    __syncthreads();  // all is written before a flag says so
    if (t < ranks.size && t != ranks.rank) {
      SystemWide<unsigned>(*flag_of(ranks, t, half, ranks.rank)).store(epoch * 2 + (more ? 1 : 0), kRelease);
      if (awaited(ranks, epoch, half, t) % 2 == 1) goes_on = true;
    }
    __syncthreads();
    receive(round, half);
    more = goes_on;
    __syncthreads();  // all have seen whether it goes on
    if (!more) break;
  }
  if (t == 0) *epoch_of(ranks) = epoch;
}

}  // namespace
}  // namespace bnlab::peers
