// `bnlab vectors`: the conformance cases of batch normalisation as files that any framework can be judged by.
// Needs no LibTorch to include.
#pragma once

#include <cstdint>
#include <string>

namespace bnlab {

inline constexpr int kVectorsVersion = 1;  // the layout of the files; a reader refuses others
inline constexpr const char* kVectorsFile = "vectors.json";
inline constexpr const char* kVectorTensorsFile = "vectors.safetensors";

struct WrittenVectors {
  int64_t cases = 0;
  int64_t bytes_of_both = 0;
};

// Writes both files into the folder, which is made where it is missing. README.md says what is in them.
// Throws Error (environment) if the disk refuses.
WrittenVectors write_vectors(const std::string& folder);

}  // namespace bnlab
