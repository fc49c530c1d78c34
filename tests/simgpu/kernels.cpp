#include <cxxabi.h>
#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>

#include "tests/simgpu/launch.hpp"

namespace simgpu {

std::string name_of(const void* kernel, const std::type_info& parameters) {
  if (!watches_races()) return "a kernel of bnlab";
  Dl_info found;  // of no kernel that only one file knows
  const bool known = dladdr(kernel, &found) != 0 && found.dli_sname != nullptr;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(known ? found.dli_sname : parameters.name(), nullptr, nullptr, &status),
      &std::free);
  std::string name = status == 0 ? plain.get() : "?";
  for (const char* part :
       {"(anonymous namespace)::", "bnlab::kernels::", "cuda::", "channel::", "std::tuple", "void "}) {
    for (size_t at = name.find(part); at != std::string::npos; at = name.find(part))
      name.erase(at, std::strlen(part));
  }
  return "kernel " + name.substr(0, name.find('('));
}

void run_grid(dim3 grid, dim3 block, size_t argument_bytes, const std::function<void()>& body) {
  if (devices_are_broken()) return;
  static std::mutex& one = *new std::mutex;  // the emulated GPU has one grid
  const std::lock_guard lock(one);
  const Watch watch;
  emulation::set_poison(
      false);  // of shared memory, which is megabytes for all kernels together; tests/emulation does
  try {
    emulation::run_grid(grid, block, argument_bytes, body);
  } catch (const emulation::Trapped&) {
    break_devices();
  }
}

}  // namespace simgpu

// The kernels are compiled for the thread sanitiser, and these stand in its place: it is told of every
// access to memory.
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
#define ACCESSES(bytes)                                             \
  void __tsan_read##bytes(void* p) {                                \
    if (simgpu::Watch::on) simgpu::Watch::touched(p, bytes, false); \
  }                                                                 \
  void __tsan_write##bytes(void* p) {                               \
    if (simgpu::Watch::on) simgpu::Watch::touched(p, bytes, true);  \
  }                                                                 \
  void __tsan_unaligned_read##bytes(void* p) {                      \
    __tsan_read##bytes(p);                                          \
  }                                                                 \
  void __tsan_unaligned_write##bytes(void* p) {                     \
    __tsan_write##bytes(p);                                         \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
#define ATOMICS(bits, T)                                                                      \
  T __tsan_atomic##bits##_load(const T* p, int) {                                             \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                              \
  }                                                                                           \
  void __tsan_atomic##bits##_store(T* p, T v, int) {                                          \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                 \
  }                                                                                           \
  T __tsan_atomic##bits##_fetch_add(T* p, T v, int) {                                         \
    return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                        \
  }                                                                                           \
  T __tsan_atomic##bits##_fetch_sub(T* p, T v, int) {                                         \
    return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                        \
  }                                                                                           \
  int __tsan_atomic##bits##_compare_exchange_strong(T* p, T* was, T v, int, int) {            \
    return __atomic_compare_exchange_n(p, was, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
  }
ATOMICS(8, uint8_t)  // of what is inlined around the kernels
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)
void __tsan_read_range(void* p, size_t bytes) {
  if (simgpu::Watch::on) simgpu::Watch::touched(p, bytes, false);
}
void __tsan_write_range(void* p, size_t bytes) {
  if (simgpu::Watch::on) simgpu::Watch::touched(p, bytes, true);
}
}
