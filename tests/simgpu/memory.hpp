// Memory of the devices, and pinned memory of the host. Both are memory of this process between pages that
// nobody may touch. Fresh memory is full of NaN, and what was freed is never mapped again: whoever reads or
// writes outside gets a signal on the spot. All of it lies in one stretch of addresses, and behind that are
// the cells in which races.hpp keeps what it knows of each four bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>

namespace simgpu {

enum class Kind { device, pinned, registered };

struct Block {
  size_t size;  // bytes
  int device;
  Kind kind;
};

// Not guarded: the machine's mutex is (machine.hpp).
class Memory {
 public:
  using Blocks = std::map<uintptr_t, Block>;  // by their addresses

  Memory();
  static bool has(const void* address) { return reinterpret_cast<uintptr_t>(address) - begin_ < kStretch; }
  static uint32_t* cell_of(const void* address) {  // only where races are looked for
    return reinterpret_cast<uint32_t*>((reinterpret_cast<uintptr_t>(address) & ~uintptr_t{3}) + kStretch);
  }

  cudaError_t allocate(void** address, size_t size, Kind kind, int device);
  void release(Blocks::iterator block);
  // A file that from now on holds the block, and this process's view of such a file of another.
  int shared_file(Blocks::iterator block);
  cudaError_t open_shared(void** address, int file, size_t size, int device);
  void add_registered(void* address, size_t size, int device);
  void remove_registered(void* address);

  // The block that holds the address, or begins there; none() if there is no such block.
  Blocks::iterator holding(const void* address);
  Blocks::iterator beginning_at(const void* address);
  Blocks::iterator none() { return blocks_.end(); }

 private:
  static constexpr size_t kStretch = size_t{1} << 38;
  inline static uintptr_t begin_ = 0;
  size_t used_ = 0;  // bytes
  Blocks blocks_;
};

}  // namespace simgpu
