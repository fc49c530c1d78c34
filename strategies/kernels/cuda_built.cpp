#include "harness/strategy.hpp"

bool bnlab::has_cuda_kernels() {
#ifdef BNLAB_WITH_CUDA
  return true;
#else
  return false;
#endif
}
