// What float32 means on a GPU.
#pragma once

#include <ATen/Context.h>

namespace bnlab {

// Whether GPUs may round the factors of convolutions and matrix products to TF32 (10 bits behind the point),
// for the whole process. LibTorch by itself does so in convolutions, which the CPU never does.
inline void allow_tf32(bool allowed) {
  at::globalContext().setAllowTF32CuDNN(allowed);
  at::globalContext().setAllowTF32CuBLAS(allowed);
}

}  // namespace bnlab
