// The CPU loops for the compiler's default instruction set.
#define BNLAB_CPU_NAMESPACE baseline
#include "strategies/kernels/cpu_loops.inc"
