#include <mutex>

#include "tests/simgpu/launch.hpp"

namespace simgpu {

void run_grid(dim3 grid, dim3 block, size_t argument_bytes, const std::function<void()>& body) {
  static std::mutex& one = *new std::mutex;  // the emulated GPU has one grid
  const std::lock_guard lock(one);
  emulation::set_poison(
      false);  // of shared memory, which is megabytes for all kernels together; tests/emulation does
  emulation::run_grid(grid, block, argument_bytes, body);
}

}  // namespace simgpu
