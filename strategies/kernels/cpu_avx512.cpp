// The CPU loops for AVX-512 (-mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma).
#define BNLAB_CPU_NAMESPACE avx512
#include "strategies/kernels/cpu_loops.inc"
