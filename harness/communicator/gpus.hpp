// The GPUs that this process sees. Needs no LibTorch to include.
#pragma once

#include <string>
#include <vector>

namespace bnlab {

// 0 where the program does not hold its CUDA kernels.
int visible_gpus();
// A name of each visible GPU, or MIG slice, by which ranks can tell whether they see the same.
std::vector<std::string> names_of_gpus();

}  // namespace bnlab
