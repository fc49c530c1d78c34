// The file of weights that a spec names.
#pragma once

#include <cstdint>
#include <string>

namespace bnlab {

// What is to be said of a file of torch.save (.pth, .pt, .ckpt, ...) where a safetensors file is expected:
// the line that converts it; "" for a file with another ending.
std::string pytorch_cure(const std::string& file);

// The pattern of a file with a run's seed for {seed}.
std::string with_seed(const std::string& pattern, uint64_t seed);

// The same, and where a * is left, as in shells, the one file that fits; where none or several fit, the
// pattern.
std::string file_of_seed(const std::string& pattern, uint64_t seed);

}  // namespace bnlab
