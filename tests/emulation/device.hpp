// An emulated GPU: what the CUDA sources of strategies/kernels use of CUDA's language, for the host
// compiler. The threads of a block are fibres that take turns between barriers, blocks run one after
// another, shared memory is static. README.md says what this can judge and what it cannot. The simulated
// GPU of tests/simgpu runs its kernels on it, too, beside CUDA's own header.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <stdexcept>

#undef __shared__
#undef __launch_bounds__
#undef __restrict__
#undef __syncthreads
#define __launch_bounds__(...)
#define __restrict__ __restrict
// One section holds all shared memory, so that every block finds it poisoned.
#define __shared__ [[gnu::section("emulated_shared")]] static
// The thread goes on here, and not in a function that then returns: a processor predicts returns badly
// after a jump.
#define __syncthreads()                                                   \
  do {                                                                    \
    if (__builtin_setjmp(::emulation::place_at_barrier(__LINE__)) == 0) { \
      ::emulation::leave_thread();                                        \
    }                                                                     \
  } while (false)

// Of the thread that runs, for which they never change: the compiler need not read them twice.
extern const uint3 threadIdx asm("emulated_thread"), blockIdx asm("emulated_block");
extern const uint3 blockDim asm("emulated_threads"), gridDim asm("emulated_blocks");

namespace emulation {
void take_ticket(const unsigned* ticket, bool releases, bool acquires);
void moved(size_t bytes);
void trap();
int lane();  // of the thread that runs, in its warp
// Waits until all lanes of `mask` have come here, and puts what the lane `source` has brought in the place of
// `value`.
void exchange(unsigned mask, int source, void* value, size_t bytes, int line);
}  // namespace emulation

inline void __trap() {
  emulation::trap();
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int line = __builtin_LINE()) {
  emulation::exchange(mask, source, &value, sizeof value, line);
  return value;
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int line = __builtin_LINE()) {
  return __shfl_sync(mask, value, emulation::lane() ^ distance, line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, int distance, int line = __builtin_LINE()) {
  const int source = emulation::lane() + distance;
  return __shfl_sync(mask, value, source < 32 ? source : emulation::lane(), line);
}

// What <cuda/atomic> has of it, whose stub is empty. Only tickets are counted in this way.
namespace cuda {
enum thread_scope { thread_scope_device };
enum memory_order { memory_order_relaxed, memory_order_acquire, memory_order_release, memory_order_acq_rel };
template <class T, thread_scope>
class atomic_ref {
 public:
  explicit atomic_ref(T& value) : value_(value) {}
  T fetch_add(T more, memory_order order) const {
    emulation::take_ticket(&value_, (order & memory_order_release) != 0, (order & memory_order_acquire) != 0);
    const T before = value_;
    value_ += more;
    return before;
  }

 private:
  T& value_;
};
}  // namespace cuda

inline float __fdividef(float a, float b) {
  return a / b;
}
inline void __threadfence_system() {}
template <class T>
T __ldg(const T* p) {
  emulation::moved(sizeof(T));
  return *p;
}
template <class T>
void __stwb(T* p, T value) {
  emulation::moved(sizeof(T));
  *p = value;
}
template <class T>
T atomicAdd(T* p, T value) {
  const T before = *p;
  *p += value;
  return before;
}

namespace emulation {

// In which order the threads between two barriers and the blocks of a grid run.
enum class Order { ascending, descending, shuffled };
void set_order(Order order);
// Whether every block finds shared memory full of NaN, as it does unless this says otherwise.
void set_poison(bool poison);

// The stream that kernels are given to from now on. What a ticket belongs to is remembered of all but 0.
void set_stream(int64_t stream);
int64_t stream();

struct Counts {
  int64_t launches = 0, blocks = 0, barriers = 0;
  int64_t bytes = 0;  // that __ldg and __stwb moved: those of tensors like x
};
Counts& counts();  // since the program began

// What a barrier is made of: where the thread goes on after it, and the way to the thread that comes next.
void** place_at_barrier(int line);
void leave_thread();
struct Trapped : std::runtime_error {
  using runtime_error::runtime_error;
};
// Calls body() once for every thread. Throws Trapped where a thread has trapped, and std::runtime_error for
// what a GPU would refuse, and where threads of a block part at a barrier or lanes at a shuffle, where a
// lane never comes, where a thread takes a ticket without release and acquire, and where two streams take
// the same.
void run_grid(dim3 grid, dim3 block, size_t argument_bytes, const std::function<void()>& body);

}  // namespace emulation
