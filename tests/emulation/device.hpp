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
void fence();
void take_ticket(const unsigned* ticket);
void moved(size_t bytes);
void trap();
}  // namespace emulation

inline void __trap() {
  emulation::trap();
}

inline void __threadfence() {
  emulation::fence();
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
// A ticket: 0, 1, ..., last, 0, ...
inline unsigned atomicInc(unsigned* p, unsigned last) {
  emulation::take_ticket(p);
  const unsigned before = *p;
  *p = before >= last ? 0 : before + 1;
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
// Calls body() once for every thread. Throws Trapped where a thread has trapped, std::runtime_error for what a GPU would refuse, and where
// threads of a block part at a barrier, where a thread takes a ticket without a fence before and after it (up
// to the barriers around), and where two streams take the same.
void run_grid(dim3 grid, dim3 block, size_t argument_bytes, const std::function<void()>& body);

}  // namespace emulation
