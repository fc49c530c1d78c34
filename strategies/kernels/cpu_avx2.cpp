// The CPU loops for AVX2 and FMA (-mavx2 -mfma).
#define BNLAB_CPU_NAMESPACE avx2
#include "strategies/kernels/cpu_loops.inc"
