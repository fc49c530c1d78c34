#include "harness/training/peak_memory.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "harness/communicator/gpus.hpp"

namespace bnlab {
namespace {

constexpr size_t kAlignment = 64;
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> peak_bytes{0};

void release(void* block) {
  live_bytes -= static_cast<int64_t>(malloc_usable_size(block));
  std::free(block);
}

// oneDNN requires that a block's context is the block itself, so its size is asked of malloc.
class AccountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &release, c10::kCPU};
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, bytes) != 0) throw std::bad_alloc();
    const int64_t live = live_bytes += static_cast<int64_t>(malloc_usable_size(block));
    int64_t peak = peak_bytes;
    while (live > peak && !peak_bytes.compare_exchange_weak(peak, live)) {
    }
    return {block, block, &release, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void account_cpu_memory() {
  static AccountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
}

void reset_peak_memory(c10::Device device) {
  peak_bytes = live_bytes.load();
  if (device.is_cuda()) reset_peak_memory_of_gpu(device.index());
}

int64_t peak_memory_bytes(c10::Device device) {
  return device.is_cuda() ? peak_memory_bytes_of_gpu(device.index()) : peak_bytes.load();
}

}  // namespace bnlab
