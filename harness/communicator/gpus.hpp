// The GPUs that this process sees, and what CUDA says of them. Needs no LibTorch to include.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bnlab {

// 0 where the program does not hold its CUDA kernels.
int visible_gpus();
// A name of each visible GPU, or MIG slice, by which ranks can tell whether they see the same.
std::vector<std::string> names_of_gpus();
// Their models, such as "NVIDIA H100".
std::vector<std::string> models_of_gpus();
// The others whose memory each visible GPU can reach by itself.
std::vector<std::vector<int>> peers_of_gpus();
// Such as "13.0"; empty without CUDA.
std::string cuda_version();

// Makes this GPU the one that the calling thread works on. Throws Error (environment) where rank `rank` has
// none of this number.
void take_gpu(int gpu, int rank);

// Makes what tensors hold on this GPU now their peak.
void reset_peak_memory_of_gpu(int gpu);
int64_t peak_memory_bytes_of_gpu(int gpu);  // since then

}  // namespace bnlab
