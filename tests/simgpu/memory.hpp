// Memory of the devices, and pinned memory of the host. Both are memory of this process between pages that
// nobody may touch. Fresh memory is full of NaN, and what was freed is never mapped again: whoever reads or
// writes outside gets a signal on the spot.
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

  cudaError_t allocate(void** address, size_t size, Kind kind, int device);
  void release(Blocks::iterator block);
  void add_registered(void* address, size_t size, int device);
  void remove_registered(void* address);

  // The block that holds the address, or begins there; none() if there is no such block.
  Blocks::iterator holding(const void* address);
  Blocks::iterator beginning_at(const void* address);
  Blocks::iterator none() { return blocks_.end(); }

 private:
  Blocks blocks_;
};

}  // namespace simgpu
