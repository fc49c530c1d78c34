#include "tests/simgpu/memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/simgpu/simgpu.hpp"

namespace simgpu {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kAlignment = 512;  // CUDA's
constexpr int kNaN = 0xff;          // bytes of every floating type's NaN

// A block ends, up to its alignment, where a page begins that nobody may touch.
struct Extent {
  size_t used, mapped;  // bytes; the block takes the last of the mapped ones
  explicit Extent(size_t size)
      : used((std::max<size_t>(size, 1) + kAlignment - 1) / kAlignment * kAlignment),
        mapped((used + kPage - 1) / kPage * kPage) {}
};

}  // namespace

Memory::Memory() {
  void* const all =
      mmap(nullptr, 2 * kStretch, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) die("no addresses are left for the memory of devices");
  begin_ = reinterpret_cast<uintptr_t>(all);
}

cudaError_t Memory::allocate(void** address, size_t size, Kind kind, int device) {
  const Extent extent(size);
  char* const first = reinterpret_cast<char*>(begin_ + used_ + kPage);
  if (used_ + extent.mapped + kPage > kStretch ||
      mprotect(first, extent.mapped, PROT_READ | PROT_WRITE) != 0 ||
      (watches_races() && mprotect(first + kStretch, extent.mapped, PROT_READ | PROT_WRITE) != 0)) {
    return cudaErrorMemoryAllocation;
  }
  used_ += extent.mapped + kPage;
  std::memset(first, kNaN, extent.mapped);
  *address = first + extent.mapped - extent.used;
  blocks_[reinterpret_cast<uintptr_t>(*address)] = {size, device, kind};
  return cudaSuccess;
}

void Memory::release(Blocks::iterator block) {
  const Extent extent(block->second.size);
  char* const first = reinterpret_cast<char*>(block->first + extent.used) - extent.mapped;
  mmap(first, extent.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  blocks_.erase(block);
}

int Memory::shared_file(Blocks::iterator block) {
  const Extent extent(block->second.size);
  char* const first = reinterpret_cast<char*>(block->first + extent.used) - extent.mapped;
  const int file = memfd_create("simgpu", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(extent.mapped)) != 0 ||
      pwrite(file, first, extent.mapped, 0) != static_cast<ssize_t>(extent.mapped))
    die("memory cannot be shared");
  mmap(first, extent.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  return file;
}

cudaError_t Memory::open_shared(void** address, int file, size_t size, int device) {
  const cudaError_t error = allocate(address, size, Kind::device, device);
  if (error != cudaSuccess) return error;
  const Extent extent(size);
  char* const first = static_cast<char*>(*address) + extent.used - extent.mapped;
  mmap(first, extent.mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  return cudaSuccess;
}

void Memory::add_registered(void* address, size_t size, int device) {
  blocks_[reinterpret_cast<uintptr_t>(address)] = {size, device, Kind::registered};
}

void Memory::remove_registered(void* address) {
  blocks_.erase(reinterpret_cast<uintptr_t>(address));
}

Memory::Blocks::iterator Memory::holding(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return none();
  --block;
  return at < block->first + std::max<size_t>(block->second.size, 1) ? block : none();
}

Memory::Blocks::iterator Memory::beginning_at(const void* address) {
  return blocks_.find(reinterpret_cast<uintptr_t>(address));
}

}  // namespace simgpu
